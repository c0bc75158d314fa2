"""What the job's own past says of a wait: how long such waits usually are, and which call usually
follows which.
"""

from __future__ import annotations

from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.model.capture import Frame
from hangdoctor.model.operations import Group, Operation, RankOps, group_uid
from tests.support.ops_programs import only_cause


def _reduces(rank: int, waits: list[float], taken_s: float, enters: bool) -> RankOps:
    """One all_reduce a 10 s, left after `waits`; the last, entered 2 s before the capture, is not
    left.
    """
    uid = group_uid([0, 1])
    ops = [
        Operation(
            uid, i + 1, "all_reduce", "done", entered_s=10.0 * i + 1, left_s=10.0 * i + 1 + wait
        )
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


def test_a_wait_that_began_during_the_capture_is_no_longer_than_usual():
    """A capture of a busy node takes seconds: by the clock of its begin, the wait lies in the
    future.
    """
    for beat_s, doubted in ((0.0, True), (99.0, True), (101.0, True), (150.0, False)):
        ops = {r: _reduces(r, [5.0] * 8, 100.0, enters=r == 0) for r in (0, 1)}
        for one in ops.values():
            one.heartbeat_s = beat_s
        cause = only_cause(diagnose_ops(OpsEvidence(ops=ops, world_size=2, taken_s=96.0)))
        assert (cause.alternatives[0].kind == "slow") == doubted == (cause.confidence <= 0.5)


def test_gradients_reduced_without_a_record_are_not_excluded_where_no_stack_does():
    uid = group_uid([0, 1])
    ops = {r: RankOps(r, 2, groups=[Group(uid, [0, 1])], steps=20) for r in (0, 1)}
    ops[1].operations.append(Operation(uid, 1, "all_reduce", "entered"))
    for places, doubted in (({}, True), ({0: Frame("load", "data.py", 3)}, False)):
        cause = only_cause(diagnose_ops(OpsEvidence(ops=ops, world_size=2, places=places)))
        assert (cause.kind, cause.ranks) == ("not_entered", [0])
        assert (
            (cause.confidence < 0.5)
            == doubted
            == any("without a record" in a.why_not for a in cause.alternatives)
        )


def test_a_skipped_call_is_distinguished_from_a_wrong_one_by_what_came_after_it_before():
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


def test_calls_from_a_line_of_its_own_are_not_said_to_be_left_out() -> None:
    """Rank 1 goes through the model once more; its gathers match those of the others' next step."""
    uid = group_uid([0, 1, 2])
    gather, scatter = "all_gather_into_tensor", "reduce_scatter_tensor"
    forward = [(gather, "train (job.py:10)"), (gather, "forward (job.py:4)")]
    backward = [(call, "train (job.py:11)") for call in (gather, scatter, scatter)]
    step = forward + backward
    extra = [(gather, "sample (job.py:7)"), (gather, "forward (job.py:4)")]

    def rank(number: int, last: list[tuple[str, str]]) -> RankOps:
        calls = step * 5 + last
        ops = [Operation(uid, i, op, "done", site=site) for i, (op, site) in enumerate(calls, 1)]
        ops[-1].state = "entered"
        return RankOps(number, 3, groups=[Group(uid, [0, 1, 2])], operations=ops)

    ops = {n: rank(n, step[:4]) for n in (0, 2)} | {1: rank(1, extra + extra)}
    cause = only_cause(diagnose_ops(OpsEvidence(ops=ops, world_size=3)))
    assert cause.ranks == [1] and "skipped" not in cause.summary, cause.summary


def test_without_a_layout_a_stage_that_leaves_its_own_rhythm_is_distinguished_from_its_neighbours():
    """Four stages; one of them receives from behind before it sends there. No two stages run the
    same program.
    """
    uid = group_uid([0, 1, 2, 3])

    def stage(rank: int, odd: bool) -> RankOps:
        up = [("recv", rank - 1), ("send", rank + 1)]
        down = [("recv", rank + 1), ("send", rank - 1)]
        usual = [call for call in up + down if 0 <= call[1] <= 3]
        last = [call for call in (up[:1] + down[:1] if odd else up + down) if 0 <= call[1] <= 3]
        ops = [Operation(uid, 0, op, "done", peer=peer) for _ in range(6) for op, peer in usual]
        ops += [Operation(uid, 0, op, "done", peer=peer) for op, peer in last]
        counts: dict[tuple[str, int], int] = {}
        for op in ops:
            key = (op.op, op.peer)
            op.seq = counts[key] = counts.get(key, 0) + 1
        return RankOps(rank, 4, groups=[Group(uid, [0, 1, 2, 3])], operations=ops)

    for culprit in (0, 1, 2):
        ops = {r: stage(r, r == culprit) for r in range(4)}
        for r, waits in _stuck_behind(culprit).items():
            del ops[r].operations[len(ops[r].operations) - waits + 1 :]
            ops[r].operations[-1].state = "entered"
        cause = only_cause(diagnose_ops(OpsEvidence(ops=ops, world_size=4)))
        assert (cause.kind, cause.ranks) == ("p2p_unmatched", [culprit]), cause.summary
        assert "in each earlier round" in cause.summary


def _stuck_behind(culprit: int) -> dict[int, int]:
    """How many calls of its last round each stage has not made, plus one: those before wait for the
    way back.
    """
    waits = {r: len([x for x in (r - 1, r + 1) if 0 <= x <= 3]) for r in range(culprit)}
    waits[culprit] = 1
    return waits | {
        r: 2 * len([x for x in (r - 1, r + 1) if 0 <= x <= 3]) for r in range(culprit + 1, 4)
    }


def test_a_stage_that_counts_one_micro_batch_more_is_named_where_the_last_round_is_short_for_all():
    """GPipe: the last batch is not full, and one stage rounds the number of its parts up."""
    for culprit in range(4):
        rounds = {r: [4, 4, 4, 4, 3 if r == culprit else 2] for r in range(4)}
        cause = only_cause(diagnose_ops(OpsEvidence(ops=_run_stages(rounds), world_size=4)))
        assert (cause.kind, cause.ranks) == ("p2p_unmatched", [culprit]), cause.summary
        assert "one call too many" in cause.summary


def test_a_short_round_of_most_stages_names_no_stage_by_its_rhythm():
    rounds = {r: [4, 4, 4, 4, 3 if r in (2, 3) else 2] for r in range(4)}
    found = diagnose_ops(OpsEvidence(ops=_run_stages(rounds), world_size=4)).findings
    assert [f.ranks for f in found] == [[1, 2]]


def _run_stages(rounds: dict[int, list[int]]) -> dict[int, RankOps]:
    """What the stages of a GPipe have called when none of them can go on: a send and its receive
    end together.
    """
    uid, world = group_uid(list(rounds)), len(rounds)
    left = {r: [c for n in parts for c in _round(r, world, n)] for r, parts in rounds.items()}
    made: dict[int, list[Operation]] = {r: [] for r in rounds}
    counts: dict[tuple[int, str, int], int] = {}

    def call(rank: int, state: str) -> None:
        op, peer = left[rank].pop(0)
        counts[rank, op, peer] = seq = counts.get((rank, op, peer), 0) + 1
        line = f"{op} (pipe.py:{10 + peer})"
        made[rank].append(Operation(uid, seq, op, state, peer=peer, site=line))

    moved = True
    while moved:
        moved = False
        for rank in rounds:
            op, peer = left[rank][0] if left[rank] else ("", -1)
            if op == "send" and left[peer] and left[peer][0] == ("recv", rank):
                call(rank, "done")
                call(peer, "done")
                moved = True
    for rank in rounds:
        if left[rank]:
            call(rank, "entered")
    members = [Group(uid, list(rounds))]
    return {r: RankOps(r, world, groups=members, operations=ops) for r, ops in made.items()}


def _round(rank: int, world: int, parts: int) -> list[tuple[str, int]]:
    ahead = [("recv", rank - 1), ("send", rank + 1)]
    back = [("recv", rank + 1), ("send", rank - 1)]
    return [(op, peer) for op, peer in ahead * parts + back * parts if 0 <= peer < world]
