"""A rank that a launcher killed to clean up is no cause, where the program's own error is above it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

RAN_OUT = "forrtl: severe (24): end-of-file during read, unit 12, file /data/tide/grid.dat\n"
SIGNAL_9, SIGNAL_11 = "KILLED BY SIGNAL: 9 (Killed)", "KILLED BY SIGNAL: 11 (Segmentation fault)"
TRACE = """\
Traceback (most recent call last):
  File "/job/tide.py", line 31, in load
    depth = float(row[3])
ValueError: could not convert string to float: 'shoal'
"""


def box(rank: int, how: str = SIGNAL_9) -> str:
    """mpiexec's word on one process."""
    line = "=" * 80
    return (
        f"{line}\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
        f"=   RANK {rank} PID {8100 + rank} RUNNING AT shore3\n=   {how}\n{line}\n\n"
    )


@pytest.mark.parametrize("error", [RAN_OUT, TRACE])
def test_an_error_before_a_kill_is_the_cause_whose_ever_it_is(tmp_path: Path, error: str) -> None:
    verdict = diagnosed(tmp_path, error + box(1))
    assert named(verdict) == [("error", [])] and verdict.status == "failed"
    assert "SIGKILL" not in verdict.summary and "dmesg" not in str(verdict)
    assert [(e.role, e.ranks) for e in verdict.chain] == [("cause", []), ("end", [1])]


def test_an_error_of_another_rank_before_a_kill_is_the_cause(tmp_path: Path) -> None:
    said = "".join(f"[rank2]: {line}\n" for line in TRACE.splitlines())
    assert named(diagnosed(tmp_path, said + box(1))) == [("error", [2])]


def test_a_kill_with_nothing_before_it_stays_what_it_was(tmp_path: Path) -> None:
    assert named(diagnosed(tmp_path, box(1))) == [("dead", [1])]
    several = diagnosed(tmp_path, "".join(box(rank) for rank in (1, 2, 3)))
    assert several.status == "unknown" and "SIGKILL" in several.summary


def test_an_error_after_the_kill_explains_nothing(tmp_path: Path) -> None:
    assert named(diagnosed(tmp_path, box(1) + RAN_OUT)) == [("dead", [1])]


def test_a_crash_is_no_kill(tmp_path: Path) -> None:
    log = "terminate called after throwing an instance of 'tide::Shoal'\n"
    assert named(diagnosed(tmp_path, log + box(1, SIGNAL_11)))[0][1] == [1]


def test_an_error_after_which_the_job_went_on_ended_nothing(tmp_path: Path) -> None:
    steps = "".join(f"iteration {n}/ 900 | loss 2.{n}\n" for n in range(40, 60))
    assert named(diagnosed(tmp_path, TRACE + steps + box(1))) == [("dead", [1])]


def test_a_kill_for_lack_of_memory_is_the_cause(tmp_path: Path) -> None:
    memory = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.\n"
    assert named(diagnosed(tmp_path, RAN_OUT + memory + box(1)))[0][0] == "dead"


def row(rank: int, code: int, second: int) -> str:
    """A row of torchrun's table."""
    return (
        f"  time      : 2026-03-09_11:02:{second:02}\n  host      : shore3\n"
        f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {700 + rank})\n"
        "  error_file: <N/A>\n"
    )


def table(first: str, *others: str) -> str:
    """torchrun's table, the first one last."""
    rows = "".join(f"[{n + 1}]:\n{other}" for n, other in enumerate(others))
    line = "-" * 60
    return (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
        f"{'=' * 60}\nserve.py FAILED\n{line}\nFailures:\n{rows}{line}\n"
        f"Root Cause (first observed failure):\n[0]:\n{first}{'=' * 60}\n"
    )


def test_who_aborted_before_torchrun_ended_the_others_is_named_with_little_confidence(
    tmp_path: Path,
) -> None:
    verdict = diagnosed(tmp_path, table(row(2, -6, 8), row(0, -15, 9), row(1, -6, 9)))
    assert named(verdict) == [("dead", [2])] and verdict.causes[0].confidence < 0.5
    assert "as torchrun saw it" in verdict.summary
    ends = [(e.ranks, e.line) for e in verdict.chain]
    assert ends[0][0] == [2] and sorted(e[0] for e in ends[1:]) == [[0], [1]]


def test_aborts_in_one_second_name_nobody_and_no_victim_is_spoken_of(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, table(row(2, -6, 9), row(0, -15, 9), row(1, -6, 9)))
    assert verdict.status == "unknown" and not verdict.causes
    assert "ranks 1-2 ended with SIGABRT" in verdict.summary and "SIGTERM" not in verdict.summary


def test_who_aborted_first_is_not_named_where_all_aborted(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, table(row(2, -6, 8), row(0, -6, 9), row(1, -6, 9)))
    assert not verdict.causes


def test_an_abort_after_a_wait_is_of_a_watchdog(tmp_path: Path) -> None:
    waited = (
        "[rank2]:[E309 11:02:07.000000000 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=14, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
    )
    verdict = diagnosed(tmp_path, waited + table(row(2, -6, 8), row(0, -15, 9), row(1, -6, 9)))
    assert not any(cause.ranks == [2] for cause in verdict.causes)


def test_a_table_of_victims_alone_still_speaks_of_them(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, table(row(2, -15, 9), row(0, -15, 9)))
    assert verdict.status == "unknown" and "SIGTERM" in verdict.summary
