"""Dumps of gloo's recorder, which leaves sends and receives out: a rank outside of all that is
recorded may wait in one.
"""

from __future__ import annotations

from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.model.operations import Group, Operation, RankOps, group_uid
from tests.support.ops_programs import only_cause


def _dumps(idle: set[int]) -> OpsEvidence:
    """Four ranks whose third all_reduce the `idle` ones have not entered."""
    world = [0, 1, 2, 3]
    uid = group_uid(world)
    ops = {}
    for rank in world:
        done = [Operation(uid, seq, "all_reduce", "done") for seq in (1, 2)]
        under_way = [] if rank in idle else [Operation(uid, 3, "all_reduce", "entered")]
        ops[rank] = RankOps(rank, 4, "flight_recorder", [Group(uid, world)], done + under_way)
    return OpsEvidence(ops=ops, world_size=4)


def test_one_idle_rank_is_named_with_the_transfer_that_it_may_wait_in():
    cause = only_cause(diagnose_ops(_dumps({2})))
    assert (cause.kind, cause.ranks) == ("not_entered", [2]) and cause.confidence <= 0.7
    assert "p2p_unmatched" in [a.kind for a in cause.alternatives] and "stack" in cause.advice


def test_several_idle_ranks_are_named_together_because_one_may_wait_for_another():
    cause = only_cause(diagnose_ops(_dumps({1, 2})))
    assert cause.ranks == [1, 2] and cause.confidence <= 0.4


def test_a_recorder_that_has_transfers_leaves_no_such_doubt():
    evidence = _dumps({2})
    for ops in evidence.ops.values():
        ops.source = "blackbox"
    cause = only_cause(diagnose_ops(evidence))
    assert cause.ranks == [2] and cause.confidence > 0.9
    assert "p2p_unmatched" not in [a.kind for a in cause.alternatives]


def test_a_transfer_with_both_sides_in_it_is_less_certain_than_a_collective() -> None:
    """A wrong tag, or a message that another rank meant for another, leaves the same counts."""
    pair = [0, 1]
    uid = group_uid(pair)

    def both(*operations: Operation) -> OpsEvidence:
        ops = {r: RankOps(r, 2, "blackbox", [Group(uid, pair)], [operations[r]]) for r in pair}
        return OpsEvidence(ops=ops, earlier=ops, world_size=2)

    sent, expected = (Operation(uid, 1, op, "entered") for op in ("send", "recv"))
    sent.peer, expected.peer = 1, 0
    transfer = only_cause(diagnose_ops(both(sent, expected)))
    collective = Operation(uid, 1, "all_reduce", "entered")
    reduction = only_cause(diagnose_ops(both(collective, collective)))
    assert (transfer.kind, transfer.ranks) == ("in_communication", [0, 1])
    assert transfer.confidence <= 0.65 < 0.85 < reduction.confidence
