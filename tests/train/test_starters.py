"""The trainer started by the launchers that are not torchrun: two ranks, two steps, each from its
own environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import mpi
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SMALL = "--parallel.tp 2 --train.iterations 2 --train.global_batch 2 --model.layers 1 --model.hidden_size 32 --model.seq_length 32 --data.workers 0".split()
# A launcher's ranks do not inherit what the test was started by.
CLEAN = {
    k: v
    for k, v in os.environ.items()
    if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK") and not k.startswith(("SLURM", "PMI", "OMPI"))
}

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]


def trained(command: list[str], **environ: str) -> str:
    env = (
        CLEAN
        | mpi.AS_ANYONE
        | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PATH": f"{BIN}:{os.environ['PATH']}"}
        | environ
    )
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "2 ranks = tp 2 x pp 1 x dp 1" in done.stdout
    return next(line for line in done.stdout.splitlines() if "iteration        2/       2" in line)


@pytest.mark.full  # two launchers more of one training
def test_mpiexec_and_deepspeed_train_alike() -> None:
    """Each mpiexec that is here, within an allocation whose variables say rank 0 to both ranks."""
    commands = mpi.kinds()
    if not commands:
        pytest.skip("mpiexec is not installed (scripts/setup-slurm)")
    by_mpi = {
        loss(
            trained(
                [*command, "-n", "2", sys.executable, "-m", "hangdoctor.train", *SMALL],
                **mpi.ALLOCATION,
                MASTER_PORT=str(free_port()),
            )
        )
        for command in commands.values()
    }
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
    assert by_mpi == {loss(by_deepspeed)}


def loss(line: str) -> str:
    return line.partition("lm loss: ")[2].split()[0]
