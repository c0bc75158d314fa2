"""Stacks that faulthandler printed into the job's log: of each rank its last one, and of a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

TORCH = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
WAIT = [
    ("all_reduce", TORCH, 2810),
    ("sync", "/app/train.py", 44),
    ("<module>", "/app/train.py", 75),
]
LOAD = [("read_shard", "/app/data.py", 17), ("main", "/app/train.py", 66), WAIT[-1]]
IDLE = [
    ("wait", "/usr/lib/python3.11/threading.py", 331),
    ("_bootstrap", "/usr/lib/threading.py", 9),
]
Frames = list[tuple[str, str, int]]


def thread(number: int, frames: Frames, current: bool = False) -> str:
    head = (
        f"{'Current thread' if current else 'Thread'} 0x{number:016x} (most recent call first):\n"
    )
    return head + "".join(f'  File "{f}", line {n} in {name}\n' for name, f, n in frames) + "\n"


def dump(frames: Frames) -> str:
    return "Timeout (0:05:00)!\n" + thread(0x7F11, IDLE) + thread(0x7F10, frames)


def said_by(rank: int, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


def test_the_rank_that_is_elsewhere_by_the_stacks_in_the_log(tmp_path: Path) -> None:
    text = "".join(said_by(rank, dump(LOAD if rank == 2 else WAIT)) for rank in range(4))
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("not_entered", [2])]
    assert "read_shard (data.py:17)" in verdict.summary


def test_the_last_dump_of_a_rank_holds(tmp_path: Path) -> None:
    text = said_by(0, dump(LOAD))
    text += "".join(said_by(r, dump(LOAD if r == 1 else WAIT)) for r in (0, 1, 2))
    assert named(diagnosed(tmp_path, text)) == [("not_entered", [1])]


def test_stacks_of_ranks_that_failed_are_no_places_where_they_wait(tmp_path: Path) -> None:
    text = "".join(said_by(rank, dump(LOAD if rank == 2 else WAIT)) for rank in range(4))
    error = 'Traceback (most recent call last):\n  File "/app/train.py", line 5, in main\n'
    text += said_by(3, f"{error}ValueError: bad shard\n")
    assert named(diagnosed(tmp_path, text)) == [("error", [3])]


ENDED = (
    "E1122 16:22:08.308000 27524 torch/distributed/elastic/multiprocessing/api.py:1002] "
    "failed (exitcode: 1) local_rank: 0 (pid: 27693) of binary: /v/bin/python\n"
)


def test_ranks_that_faulthandler_ended_at_its_limit_were_where_it_met_them(tmp_path: Path) -> None:
    """`dump_traceback_later(exit=True)`: the exit says no more than its stacks do."""
    deep = [*WAIT[:1], *((f"wrap_{n}", TORCH, n) for n in range(30)), *WAIT[1:]]
    text = "".join(said_by(rank, dump(LOAD if rank == 2 else deep)) for rank in range(4))
    verdict = diagnosed(tmp_path, text + ENDED)
    assert named(verdict) == [("not_entered", [2])]
    assert "sync (train.py:44)" in verdict.summary
    untold = text.replace("Timeout (0:05:00)!", "SIGUSR1")
    assert named(diagnosed(tmp_path, untold + ENDED)) != [("not_entered", [2])]


@pytest.mark.parametrize(("reason", "word"), [("Segmentation fault", "segm"), ("Bus error", "bus")])
def test_a_crash_that_faulthandler_reports_is_the_first_cause(
    tmp_path: Path, reason: str, word: str
) -> None:
    text = said_by(1, f"Fatal Python error: {reason}\n\n" + thread(0x7F10, LOAD, current=True))
    text += (
        "[rank0]:[E1122 10:00:20.100000 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=4, NumelOut=4,"
        " Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("dead", [1])] and word in verdict.summary


def test_an_abort_that_a_watchdog_made_is_no_crash(tmp_path: Path) -> None:
    text = "".join(
        said_by(r, "Fatal Python error: Aborted\n\n" + thread(0x7F10, WAIT)) for r in range(3)
    )
    assert named(diagnosed(tmp_path, text)) == []


def test_the_verdict_of_run_in_the_jobs_output_is_no_evidence(tmp_path: Path) -> None:
    own = "hangdoctor: Rank 3 (n1, pid 7) failed first: FloatingPointError in hook (job.py:163).\n"
    text = said_by(1, "ValueError: bad shard")
    assert named(diagnosed(tmp_path, own + "0: " + own + text)) == [("error", [1])]


def guard(rank: int) -> str:
    return f"[guard] rank {rank}: no progress for 20 s, aborting\n"


def test_a_line_that_names_one_rank_says_whose_stacks_follow_it(tmp_path: Path) -> None:
    order = (2, 1, 0, 3)
    text = "".join(guard(r) + thread(0x7F11, IDLE, current=True) + thread(1, LOAD) for r in order)
    text = text.replace("read_shard", "sync", 1).replace("/app/data.py", "/app/train.py", 1)
    waits = "".join(guard(r) + dump(LOAD if r == 2 else WAIT) for r in order)
    verdict = diagnosed(tmp_path, "step 40 loss 0.9\n" + waits)
    assert named(verdict) == [("not_entered", [2])] and "read_shard" in verdict.summary
    assert named(diagnosed(tmp_path, text)) == []


def printed(rank: int, frames: Frames) -> str:
    """As `traceback.print_stack` has it: the outermost frame first, with the source, and no head."""
    rows = [f'  File "{f}", line {n}, in {name}\n    {name}(\n' for name, f, n in frames[::-1]]
    return f"[watchdog] rank {rank}: no step since 75 s (step 47)\n" + "".join(rows) + "\n"


def test_stacks_that_the_programs_own_guard_printed_are_no_exceptions(tmp_path: Path) -> None:
    """The last frames alone; the guard leaves with an exit code of its own then."""
    backward = [("_engine_run_backward", "/v/site-packages/torch/autograd/graph.py", 979), WAIT[1]]
    text = "step 40 loss 0.1\n" + "".join(
        printed(rank, LOAD[:2] if rank == 2 else backward) for rank in (2, 0, 1, 3)
    )
    verdict = diagnosed(tmp_path, text + ENDED.replace("exitcode: 1)", "exitcode: 17)"))
    assert named(verdict) == [("not_entered", [2])], verdict.summary
    [cause] = verdict.causes
    says = " ".join(one.says for one in cause.evidence)
    assert "guard of the program's own" in says and "between the samples" not in says
    assert cause.confidence <= 0.85
    alone = diagnosed(tmp_path, "step 40\n" + printed(2, LOAD[:2]) + "step 50\n")
    assert named(alone) == [], "one rank alone stands out from nobody"


def test_stacks_after_lines_that_name_several_ranks_are_of_no_known_rank(tmp_path: Path) -> None:
    """Ranks that write at once, and one whose line stands inside of another's stacks."""
    parts = [dump(LOAD if rank == 2 else WAIT) for rank in range(4)]
    mixed = "".join(guard(r) for r in range(4)) + "".join(parts)
    assert named(diagnosed(tmp_path, mixed)) == []
    torn = guard(0) + thread(0x7F11, IDLE) + guard(2) + thread(0x7F10, WAIT)
    torn += "".join(guard(r) + dump(WAIT) for r in (1, 3)) + thread(0x7F10, LOAD)
    assert named(diagnosed(tmp_path, torn)) == []
    several = "ranks 0-3 wait\n" + parts[2] + "".join(guard(r) + parts[r] for r in (0, 1, 3))
    assert named(diagnosed(tmp_path, several)) == []
