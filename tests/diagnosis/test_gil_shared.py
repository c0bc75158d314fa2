"""Threads of several ranks that keep the GIL in one call."""

from __future__ import annotations

from hangdoctor.model.capture import Frame, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from tests.support.captures import C10D, captured, causes, judged, sample, stack, still, thread

MAIN = ("main", "/app/heat.py", 63)
SWEEPS = stack(("sweep", "/app/heat.py", 44), MAIN)


def holds(rank: int, line: int = 25) -> RankCapture:
    """Its monitor is in a call of MPI that keeps the GIL; its main thread cannot run."""
    monitor = stack(("Monitor.run", "/app/heat.py", line))
    threads = [
        [thread(SWEEPS), thread(monitor, tid=20 + rank, name="monitor", gil=True)] for _ in range(2)
    ]
    return captured(rank, [sample(float(n), *both) for n, both in enumerate(threads)])


def receives(rank: int, source: int) -> RankCapture:
    return still(rank, [Frame("recv", C10D, 27, "", {"src": source}), *stack(MAIN)])


def accused(*ranks: RankCapture) -> tuple[list[list[int]], Diagnosis]:
    said = judged(*ranks)
    assert said.status == "hang" and {kind for kind, _ in causes(said)} == {"interpreter_lock"}
    return [ranks for _, ranks in causes(said)], said


def test_the_one_whose_message_is_waited_for_is_named() -> None:
    ranks, said = accused(receives(0, 2), holds(1), holds(2), holds(3))
    assert ranks == [[2]]
    assert (
        "Rank 2 (n1, pid 11) cannot run Python: its thread 'monitor' holds the GIL" in said.summary
    )
    assert "in Monitor.run (heat.py:25) and does not release it, as on ranks 1,3." in said.summary
    assert "Rank 0 is waiting in recv from rank 2" in said.summary
    assert [one.ranks for one in said.causes[0].evidence[:3]] == [[2], [1], [3]]


def test_where_no_rank_waits_for_one_of_them_all_are_one_cause() -> None:
    ranks, said = accused(*map(holds, range(4)))
    assert ranks == [[0, 1, 2, 3]]
    assert "Ranks 0-3 (n1) cannot run Python: a thread of each holds the GIL" in said.summary


def test_two_that_are_waited_for_are_both_named() -> None:
    ranks, said = accused(receives(0, 2), receives(1, 3), holds(2), holds(3))
    assert ranks == [[2, 3]] and "as on" not in said.summary


def test_calls_at_two_lines_are_two_causes() -> None:
    ranks, _ = accused(receives(0, 2), holds(1), holds(2), holds(3, line=30))
    assert sorted(ranks) == [[2], [3]]
