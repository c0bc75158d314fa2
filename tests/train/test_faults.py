"""Faults: each act as the operating system sees it, and trainings that really hang."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.trainer_ranks import ROOT, SMALL, free_port, ranks

torch = pytest.importorskip("torch")

from hangdoctor.train import faults  # noqa: E402
from hangdoctor.train.faults.collectives import (  # noqa: E402
    COLLECTIVE_ACTS,
    half_of,
    in_another_dtype,
)
from hangdoctor.train.faults.spec import KINDS, Fault, parse_faults  # noqa: E402
from hangdoctor.train.faults.striking import ACTS  # noqa: E402

# kind -> (process state, is the main thread running)
STATES = {
    "sleep": psutil.STATUS_SLEEPING,
    "read": psutil.STATUS_SLEEPING,
    "lock": psutil.STATUS_SLEEPING,
    "gil": psutil.STATUS_SLEEPING,
    "fork_lock": psutil.STATUS_SLEEPING,
    "checkpoint_fifo": psutil.STATUS_SLEEPING,
    "busy": psutil.STATUS_RUNNING,
    "stop": psutil.STATUS_STOPPED,
    "io_wait": psutil.STATUS_DISK_SLEEP,
}

# One interpreter imports torch; a child for each kind strikes.
SCRIPT = """
import os, sys
from hangdoctor.train.faults import striking
from hangdoctor.train.faults.spec import Fault
for kind in sys.argv[1:]:
    pid = os.fork()
    if pid == 0:
        striking.strike(Fault(kind, 0, 1, "step"), {})
        os._exit(3)
    os.write(1, f"{kind} {pid}\\n".encode())
os.write(1, b"all\\n")
while True:
    os.waitpid(-1, 0)
"""


def test_every_kind_has_an_act_and_a_cause() -> None:
    assert set(KINDS) == set(ACTS) | set(COLLECTIVE_ACTS)
    causes = {k.cause for k in KINDS.values()}
    assert causes >= {
        "not_entered",
        "stopped",
        "io_wait",
        "data_wait",
        "checkpoint_wait",
        "dead",
        "mismatch",
        "order",
        "p2p_unmatched",
        "interpreter_lock",
        "busy",
        "device_wait",
        "in_communication",
        "start_stall",
        "end_stall",
        "slow",
    }


def test_acts_leave_the_process_in_the_state_that_they_name() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    parent = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *STATES, "kill", "exit"],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert parent.stdout is not None
        pids, announced = {}, set()
        while len(pids) < len(STATES) + 2 or len(announced) < len(STATES) + 2:
            words = parent.stdout.readline().split()
            assert words, "the script ended"
            if words[0] == "fault:":
                announced.add(words[1])
            elif words[0] != "all":
                pids[words[0]] = int(words[1])
        waiting, end = dict(STATES), time.monotonic() + 30
        while waiting and time.monotonic() < end:
            waiting = {k: s for k, s in waiting.items() if psutil.Process(pids[k]).status() != s}
            time.sleep(0.05)
        assert not waiting, {k: psutil.Process(pids[k]).status() for k in waiting}
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()


def test_a_wrong_tensor_differs_in_one_thing_alone() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        tensor = torch.arange(6, dtype=dtype).reshape(2, 3)
        assert half_of(tensor).tolist() == [0, 1, 2] and half_of(tensor).dtype == dtype
        other = in_another_dtype(tensor)
        assert other.shape == tensor.shape and other.dtype != dtype and other.element_size() == 2
    assert half_of(torch.ones(1)).numel() == 1


def test_an_unarmed_point_does_nothing_and_a_fault_strikes_once_where_it_should(
    monkeypatch,
) -> None:
    struck = []
    monkeypatch.setattr(
        "hangdoctor.train.faults.striking.strike",
        lambda fault, context: struck.append(fault.where) or True,
    )
    assert faults.point("dp") is False
    try:
        faults.arm(parse_faults("missing_send@1:3,sleep@0:3:dp,sleep@1:3:dp", 2), rank=1)
        for iteration in (2, 3, 4):
            faults.at_iteration(iteration)
            done = [faults.point(p) for p in ("forward", "send", "send", "dp")]
            assert done == ([False, True, False, True] if iteration == 3 else [False] * 4)
        assert struck == ["send", "dp"]
    finally:
        faults.arm([], 0)


def test_a_skipped_collective_is_the_last_of_its_iteration(monkeypatch) -> None:
    """After an earlier one the ranks would run on until gloo aborts on sizes that differ."""
    monkeypatch.setattr("hangdoctor.train.faults.striking.strike", lambda fault, context: True)
    try:
        faults.arm([Fault("skip", 0, 2, "tp")], rank=0)
        faults.at_iteration(1)
        assert [faults.point("tp") for _ in range(5)] == [False] * 5
        faults.at_iteration(2)
        assert [faults.point("tp") for _ in range(5)] == [False] * 4 + [True]
    finally:
        faults.arm([], 0)


def test_operations_of_an_evaluation_do_not_hide_the_last_one_of_a_step(monkeypatch) -> None:
    monkeypatch.setattr("hangdoctor.train.faults.striking.strike", lambda fault, context: True)
    try:
        faults.arm([Fault("skip", 0, 2, "tp")], rank=0)
        faults.at_iteration(1)
        assert [faults.point("tp") for _ in range(5)] == [False] * 5
        with faults.beside_the_step():
            assert [faults.point("tp") for _ in range(3)] == [False] * 3
        faults.at_iteration(2)
        assert [faults.point("tp") for _ in range(5)] == [False] * 4 + [True]
    finally:
        faults.arm([], 0)


FLAGS = ["-m", "hangdoctor.train", *SMALL, "--train.iterations", "60", "--log.interval", "1"]


def still(job, rank: int = 0) -> None:
    """The training does not move: no new line in two seconds, which is many iterations, and no one has left."""
    before = job.text(rank)
    time.sleep(2.0)
    assert job.text(rank) == before
    assert all(p.poll() is None for p in job.processes)


@pytest.mark.torch
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("fault", "sizes"),
    [
        # The act and the strike are shown elsewhere.
        pytest.param("stop@1:2:recv", "--parallel.pp 2", marks=pytest.mark.full),
        pytest.param("missing_recv@1:2", "--parallel.pp 2", marks=pytest.mark.full),
        ("skip@1:2:tp", "--parallel.tp 2"),
        pytest.param("blackhole@1:2:tp", "--parallel.tp 2", marks=pytest.mark.full),
        ("data_stuck@0:2", "--parallel.pp 2 --data.workers 1"),
    ],
)
def test_two_ranks_hang(fault, sizes, tmp_path) -> None:
    with ranks(2, [*FLAGS, *sizes.split(), "--fault", fault], tmp_path) as job:
        kind, rank = fault.split("@")[0], int(fault.split("@")[1][0])
        text = job.until(f"fault: {kind} at rank {rank} iteration 2", rank, 90)
        job.until(" iteration        1/")  # a loader's worker runs ahead of it
        assert (
            f"pid {job.processes[rank].pid}" in text or kind == "data_stuck"
        )  # there it is the worker's
        still(job)


@pytest.mark.full  # `tests/cli/test_demo.py` runs and hangs the same command
@pytest.mark.torch
@pytest.mark.timeout(240)
def test_eight_ranks_of_the_shipped_configuration_hang_under_torchrun(tmp_path) -> None:
    """The command of the demo, and no process left when the launcher is stopped."""
    config = ["--config", "train/configs/cpu_2x2x2.yaml", "--fault", "sleep@3:2:tp"]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        "8",
        "--master_port",
        str(free_port()),
        "-m",
        "hangdoctor.train",
        *config,
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    log = tmp_path / "log"
    with log.open("wb") as out:
        launcher = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=out, stderr=out, start_new_session=True
        )
    children: list[psutil.Process] = []
    try:
        end = time.monotonic() + 180
        while "fault: sleep at rank 3 iteration 2 tp" not in log.read_text(errors="replace"):
            assert time.monotonic() < end and launcher.poll() is None, log.read_text(
                errors="replace"
            )[-3000:]
            time.sleep(0.1)
        children = psutil.Process(launcher.pid).children(recursive=True)
        assert " iteration        1/" in log.read_text(errors="replace")
        before = log.read_text(errors="replace")
        time.sleep(3)
        assert log.read_text(errors="replace") == before
        assert len([c for c in children if c.is_running()]) >= 8
    finally:
        for process in children or psutil.Process(launcher.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # a worker ends with its rank
                process.kill()
        launcher.kill()
        launcher.wait()
    _gone, alive = psutil.wait_procs(children, timeout=10)
    assert not alive, Path(log).read_text(errors="replace")[-500:]
