"""One process from the command line: lines, evaluation, tensorboard, a signal, the automatic
resume.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import psutil
import pytest

from tests.support.trainer_ranks import ROOT, SMALL, metrics, ranks

pytest.importorskip("deepspeed")

pytestmark = [pytest.mark.torch, pytest.mark.timeout(200)]

FLAGS = [*SMALL, "--log.timers", "true", "--evaluate.interval", "2", "--evaluate.iterations", "1"]


@pytest.mark.full
def test_signal_saves_and_the_next_run_resumes(tmp_path) -> None:
    here = [
        "--checkpoint.dir",
        str(tmp_path / "ckpt"),
        "--log.metrics",
        str(tmp_path / "all.jsonl"),
    ]
    here += ["--log.tensorboard", str(tmp_path / "tb"), "--optimizer.decay_style", "constant"]
    endless = ["--train.iterations", "100000", "--data.workers", "1"]
    with ranks(1, ["-m", "hangdoctor.train", *FLAGS, *here, *endless], tmp_path / "first") as job:
        job.until("iteration        4/", timeout=90)
        rank = psutil.Process(job.processes[0].pid)
        workers = rank.children(recursive=True)
        assert workers
        for process in (*workers, rank):  # as Slurm signals every process of a step
            process.send_signal(signal.SIGUSR1)
        job.wait(60)
        assert not any(w.is_running() for w in workers)
        first = job.text()
    assert "stopped: SIGUSR1 received" in first
    assert re.search(r"^model: \d+ parameters, 2 layers", first, re.M)
    assert re.search(r"^kernels: torch: .*fastest on CPU", first, re.M)
    assert re.search(
        r"validation loss at iteration 2 \| lm loss value: \d\.\d+E\+00 \| lm loss PPL: ", first
    )
    assert re.search(
        r"^time \(ms\) \| forward-compute: [\d.]+ \| backward-compute: [\d.]+ .*optimizer: [\d.]+",
        first,
        re.M,
    )
    assert list((tmp_path / "tb").glob("events*"))
    reached = len(metrics(tmp_path, "all"))
    assert (tmp_path / "ckpt" / "latest").read_text() == f"global_step{reached}"
    # The schedule's end is another: said, refused, and taken when the user insists.
    again = [
        sys.executable,
        "-m",
        "hangdoctor.train",
        *FLAGS,
        *here,
        "--train.iterations",
        str(reached + 2),
        "--evaluate.interval",
        "0",
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    refused = subprocess.run(again, cwd=ROOT, env=env, capture_output=True, text=True, timeout=90)
    assert refused.returncode == 2
    assert "learning rate: decay_samples is" in refused.stderr
    taken = subprocess.run(
        [*again, "--checkpoint.override", "true"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert taken.returncode == 0, taken.stderr[-2000:]
    assert (
        f"resumed from {tmp_path}/ckpt/global_step{reached} at iteration {reached}" in taken.stdout
    )
    numbers = [m["iteration"] for m in metrics(tmp_path, "all")]
    assert numbers == list(range(1, reached + 3))
