"""The trainer started by the launchers that are not torchrun: two ranks, two steps, each from its
own environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mpi import ALONE, clean_environ
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SMALL = "--parallel.tp 2 --train.iterations 2 --train.global_batch 2 --model.layers 1 --model.hidden_size 32 --model.seq_length 32 --data.workers 0".split()

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]


def trained(command: list[str], **environ: str) -> str:
    env = (
        clean_environ()
        | ALONE
        | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PATH": f"{BIN}:{os.environ['PATH']}"}
        | environ
    )
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "2 ranks = tp 2 x pp 1 x dp 1" in done.stdout
    return next(line for line in done.stdout.splitlines() if "iteration        2/       2" in line)


@pytest.mark.skipif(
    shutil.which("mpiexec") is None, reason="mpiexec is not installed (scripts/setup-slurm)"
)
def test_mpiexec_and_deepspeed_train_alike() -> None:
    by_mpi = trained(
        ["mpiexec", "-n", "2", sys.executable, "-m", "hangdoctor.train", *SMALL],
        MASTER_PORT=str(free_port()),
    )
    by_deepspeed = trained(
        [
            str(BIN / "deepspeed"),
            "--num_gpus",
            "2",
            "--master_port",
            str(free_port()),
            "--module",
            "hangdoctor.train",
            *SMALL,
        ]
    )
    assert loss(by_mpi) == loss(by_deepspeed)


def loss(line: str) -> str:
    return line.partition("lm loss: ")[2].split()[0]
