"""A rank that left an operation by an exception, which the program caught, and went on."""

from __future__ import annotations

from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.model.operations import Operation
from tests.support.ops_programs import causes
from tests.support.ops_records import done, entered, evidence, rank_ops

WORLD, PAIR = [0, 1, 2, 3], [2, 3]
SYNC, STEP = "sync (vocab.py:29)", "share (train.py:50)"


def raised(seconds: float = 0.1) -> Operation:
    op = done(WORLD, 3, "all_gather_object", site=SYNC)
    op.failed = True
    op.left_s = op.entered_s + seconds
    return op


def job(*further: Operation, others: int = 4) -> OpsEvidence:
    """Rank 2's object could not be pickled; of the rest, those below `others` wait for it."""
    waits = [entered(WORLD, 3, "all_gather_object", site=SYNC)]
    ranks = [rank_ops(r, 4, waits if r < others else []) for r in (0, 1, 3)]
    return evidence([*ranks, rank_ops(2, 4, [raised(), *further])])


def test_of_a_ring_the_one_that_raised_is_named() -> None:
    """It goes on to its next step, in which rank 3 would have to be."""
    found = causes(diagnose_ops(job(entered(PAIR, 35, "broadcast", root=2, site=STEP))))
    assert [(c.kind, c.ranks) for c in found] == [("order", [2])]
    said = found[0].summary
    assert "Rank 2 left all_gather_object #3 (vocab.py:29) by an exception that was caught" in said
    assert "it is in broadcast #35" in said and "pickled" in found[0].advice


def test_so_is_one_that_waits_for_nothing() -> None:
    found = causes(diagnose_ops(job()))
    assert [c.ranks for c in found] == [[2]]
    assert "left all_gather_object #3 (vocab.py:29) by an exception" in found[0].summary


def test_a_time_out_accuses_no_rank_while_another_has_not_come() -> None:
    """Rank 2 gave up first; rank 3 never came."""
    found = causes(diagnose_ops(job(others=3)))
    assert [c.ranks for c in found] == [[3]] and "never reached" in found[0].summary


def test_the_last_call_of_a_job_that_is_over_may_have_failed_for_another_ones_end() -> None:
    """As a connection is lost to a rank that was aborted."""
    over = job()
    over.kept = True
    found = causes(diagnose_ops(over))
    assert not any("by an exception" in cause.summary for cause in found)
    over = job(entered(PAIR, 35, "broadcast", root=2, site=STEP))
    over.kept = True
    found = causes(diagnose_ops(over))
    assert [c.ranks for c in found] == [[2]]
    assert "by an exception that was caught" in found[0].summary
