"""A signal that one rank alone gets in the midst of a barrier, and whose handler makes another
call.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hangdoctor.cli.run import STARTUP
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture, NodeCapture
from tests.support.captures import C10D, LOAD, MAIN, causes, judged, stack, still
from tests.support.plain_ranks import dump, scripted
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
# Python runs the handler when the barrier's C++ returns, still inside of torch's function. A thread of
# rank 1 sends the signal once that rank is in it, and only then rank 0 comes to the barrier.
JOB = """
import os, signal, sys, threading, time
from pathlib import Path
import torch, torch.distributed as dist

ready, rank = Path(sys.argv[1]), int(os.environ["RANK"])


def wait_for(name):
    while not (ready.parent / name).exists():
        time.sleep(0.01)


def on_notice(number, frame):
    (ready.parent / "noticed").touch()
    ready.touch()
    dist.broadcast(torch.ones(1), src=0)


def notify(main):
    while sys._current_frames()[main].f_code.co_name != "barrier":
        time.sleep(0.01)
    signal.pthread_kill(main, signal.SIGUSR1)
    (ready.parent / "sent").touch()


signal.signal(signal.SIGUSR1, on_notice)
dist.init_process_group("gloo")
if rank == 1:
    threading.Thread(target=notify, args=(threading.get_ident(),), daemon=True).start()
if rank == 0:
    wait_for("sent")
dist.barrier()
wait_for("noticed")
ready.touch()
dist.all_reduce(torch.ones(2))
"""


@pytest.mark.torch
@pytest.mark.timeout(120)
@pytest.mark.parametrize("prepared", [False, True], ids=["unprepared", "with the probe"])
def test_the_rank_that_was_interrupted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: bool
) -> None:
    port = free_port()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    if prepared:
        monkeypatch.setenv("HANGDOCTOR_DIR", str(tmp_path / "boxes"))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(STARTUP), str(ROOT)]))
    with scripted(tmp_path, JOB, port, 3):
        verdict = dump(tmp_path, f"127.0.0.1:{port}")
    [cause] = verdict["causes"]
    assert (cause["kind"], cause["ranks"]) == ("order", [1]), cause["summary"]
    assert "was interrupted in barrier by on_notice (job.py:" in cause["summary"]
    assert "which calls broadcast; ranks 0,2 have not come" in cause["summary"]
    assert "signal" in cause["advice"]


BARRIER, BROADCAST = ("barrier", C10D, 5356), ("broadcast", C10D, 3151)
HANDLER, WRAPPER = ("on_notice", "/app/train.py", 12), ("wrapper", C10D, 83)
PICKLE = ("_tensor_to_object", C10D, 2900)
REDUCES = stack(("all_reduce", C10D, 3252), ("step", "/app/train.py", 40), MAIN)


def summary(*inner: tuple[str, str, int], many: int = 1) -> str:
    frames = stack(*inner, ("save", "/app/train.py", 32), MAIN)
    ranks = [still(rank, frames if rank < many else REDUCES) for rank in range(4)]
    found = diagnose(JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=4))
    return f"{causes(found)} {found.summary}"


def test_a_few_ranks_in_one_handler_are_named_together() -> None:
    assert summary(BROADCAST, HANDLER, BARRIER).startswith("[('order', [0])] Rank 0")
    assert "were interrupted in barrier" in summary(BROADCAST, HANDLER, BARRIER, many=2)


def test_a_call_that_the_library_makes_in_its_own_is_no_interruption() -> None:
    assert "interrupted" not in summary(BROADCAST, WRAPPER, ("broadcast_object_list", C10D, 3400))
    unpickled = (BROADCAST, ("__setstate__", "/app/data.py", 9), PICKLE, BARRIER)
    assert "interrupted" not in summary(*unpickled)


def test_a_wrapper_that_a_program_put_around_torchs_functions_is_no_handler() -> None:
    traced = (
        ("all_gather", C10D, 9),
        ("traced", "/app/trace.py", 7),
        ("all_gather_object", C10D, 3),
    )
    assert "interrupted" not in summary(*traced)


def test_who_does_not_wait_stays_the_cause() -> None:
    frames = stack(BROADCAST, HANDLER, BARRIER, ("save", "/app/train.py", 32), MAIN)
    found = judged(still(0, frames), still(1, REDUCES), still(2, REDUCES), still(3, LOAD))
    assert (3,) in {tuple(cause.ranks) for cause in found.causes}, found.summary


def test_most_ranks_in_the_handler_are_not_the_odd_ones() -> None:
    assert "interrupted" not in summary(BROADCAST, HANDLER, BARRIER, many=3)
