"""What the job's own past says of a wait: how long such waits usually are, and which call usually follows which."""

from __future__ import annotations

from ops_programs import only_cause

from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.operations import Group, Operation, RankOps, group_uid


def _reduces(rank: int, waits: list[float], taken_s: float, enters: bool) -> RankOps:
    """One all_reduce a 10 s, left after `waits`; the last, entered 2 s before the capture, is not left."""
    uid = group_uid([0, 1])
    ops = [
        Operation(uid, i + 1, "all_reduce", "done", entered_s=10.0 * i + 1, left_s=10.0 * i + 1 + wait)
        for i, wait in enumerate(waits)
    ]
    if enters:
        ops.append(Operation(uid, len(waits) + 1, "all_reduce", "entered", entered_s=taken_s - 2.0))
    return RankOps(rank, 2, groups=[Group(uid, [0, 1])], operations=ops)


def test_a_wait_as_long_as_many_before_is_doubted_and_a_longer_one_is_not():
    for usual, doubted in ((5.0, True), (0.1, False)):
        ops = {r: _reduces(r, [usual] * 8, 100.0, enters=r == 0) for r in (0, 1)}
        cause = only_cause(diagnose_ops(OpsEvidence(ops=ops, world_size=2, taken_s=100.0)))
        assert (cause.kind, cause.ranks) == ("not_entered", [1])
        assert ("it may only be slow" in cause.summary) == doubted == (cause.confidence <= 0.5)
        assert (cause.alternatives[0].kind == "slow") == doubted
        assert ("--settle" in cause.advice) == doubted


def test_gradients_reduced_without_a_record_are_not_excluded_where_no_stack_does():
    uid = group_uid([0, 1])
    ops = {r: RankOps(r, 2, groups=[Group(uid, [0, 1])], steps=20) for r in (0, 1)}
    ops[1].operations.append(Operation(uid, 1, "all_reduce", "entered"))
    for places, doubted in (({}, True), ({0: "load (data.py:3)"}, False)):
        cause = only_cause(diagnose_ops(OpsEvidence(ops=ops, world_size=2, places=places)))
        assert (cause.kind, cause.ranks) == ("not_entered", [0])
        assert (cause.confidence < 0.5) == doubted == any("unrecorded" in a.why_not for a in cause.alternatives)


def test_a_skipped_call_is_told_from_a_wrong_one_by_what_came_after_it_before():
    uid = group_uid([0, 1, 2])
    step = [("all_reduce", "train (job.py:10)"), ("barrier", "train (job.py:12)")]

    def rank(number: int, last: tuple[str, str]) -> RankOps:
        done = [(op, site) for _ in range(5) for op, site in step]
        ops = [Operation(uid, i + 1, op, "done", site=site) for i, (op, site) in enumerate(done)]
        ops.append(Operation(uid, len(done) + 1, last[0], "entered", site=last[1]))
        return RankOps(number, 3, groups=[Group(uid, [0, 1, 2])], operations=ops)

    for last, kind in ((step[1], "order"), (("broadcast", "train (job.py:10)"), "mismatch")):
        ops = {0: rank(0, step[0]), 1: rank(1, step[0]), 2: rank(2, last)}
        cause = only_cause(diagnose_ops(OpsEvidence(ops=ops, world_size=3)))
        assert (cause.kind, cause.ranks) == (kind, [2]), cause.summary
        assert ("skipped all_reduce #11" in cause.summary) == (kind == "order")
        assert "job.py:10" in cause.summary
