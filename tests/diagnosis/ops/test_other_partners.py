"""One rank of a ring that sends to and receives from other ranks than those that expect it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hangdoctor.diagnosis.findings import OtherPartners
from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.diagnosis.ops.partners import other_partners
from hangdoctor.diagnosis.ops.scene import Scene
from hangdoctor.diagnosis.ops.waits import build_waits
from hangdoctor.model.operations import Group, Operation, RankOps, group_uid
from tests.support.ops_programs import only_cause

Batch = tuple[int, int] | None  # sends to, receives from; None: an all_reduce of all ranks
LATER = 1e6
SITE = "pass_on (/app/ring.py:28)"
OLD, NEW, OLDER = [0, 1, 2, 3, 4, 5], [0, 2, 1, 3, 5, 4], [0, 2, 4, 1, 3, 5]


def hops(rank: int, order: Sequence[int], turns: int = 1) -> list[Batch]:
    """Some turns around a ring, each of which a reduction of all ranks ends."""
    place, size = order.index(rank), len(order)
    hop = (order[(place + 1) % size], order[place - 1])
    return [*[hop] * (size - 1), None] * turns


def all_to_all(rank: int, size: int) -> list[Batch]:
    """Each rank exchanges with another pair in each round."""
    return [((rank + far) % size, (rank - far) % size) for far in range(1, size)]


class Rank:
    """What a rank has called of its program, and what it still waits for."""

    def __init__(self, rank: int, program: list[Batch]) -> None:
        self.rank, self.program = rank, program
        self.records: list[Operation] = []
        self.called: dict[tuple[str, int], int] = {}
        self.open: list[Operation] = []

    def call(self, op: str, peer: int, at: float, uid: str) -> None:
        number = self.called[op, peer] = self.called.get((op, peer), 0) + 1
        record = Operation(uid, number, op, peer=peer, entered_s=at, asynchronous=peer >= 0)
        record.site = SITE if peer >= 0 else "step (/app/ring.py:83)"
        self.records.append(record)
        self.open.append(record)


def run(programs: list[list[Batch]]) -> OpsEvidence:
    """Run until no rank can go on. Both sides of a transfer end when both have called it."""
    ranks = [Rank(rank, list(program)) for rank, program in enumerate(programs)]
    uid, at, moved = group_uid(range(len(ranks))), 1000.0, True
    while moved:
        moved = False
        for one in ranks:
            at += 1.0
            if one.open and all(_has_come(ranks, one.rank, op) for op in one.open):
                for op in one.open:
                    op.state, op.left_s = "done", at
                one.open, moved = [], True
            elif not one.open and one.program:
                batch, moved = one.program.pop(0), True
                for op, peer in zip(("send", "recv"), batch or (), strict=False):
                    one.call(op, peer, at, uid)
                if batch is None:
                    one.call("all_reduce", -1, at, uid)
    return OpsEvidence({one.rank: _records(ranks, one, uid) for one in ranks})


def _has_come(ranks: list[Rank], rank: int, op: Operation) -> bool:
    if op.peer < 0:
        return all(one.called.get(("all_reduce", -1), 0) >= op.seq for one in ranks)
    other = "recv" if op.op == "send" else "send"
    return ranks[op.peer].called.get((other, rank), 0) >= op.seq


def _records(ranks: list[Rank], one: Rank, uid: str) -> RankOps:
    """With the first handle that has not ended as the one that the rank waits for."""
    open_now = [op for op in one.open if not _has_come(ranks, one.rank, op)]
    for op in one.open:
        if op not in open_now:
            op.state, op.left_s = "done", LATER
    if open_now:
        open_now[0].waited = open_now[0].asynchronous
    world = len(ranks)
    groups = [Group(uid, list(range(world)), "default_pg")]
    return RankOps(one.rank, world, groups=groups, operations=one.records, heartbeat_s=LATER)


def rings(own: dict[int, list[int]], others: list[int] = NEW, turns: int = 4) -> list[list[Batch]]:
    """After some turns around the first ring, another ring; some ranks have an `own` one."""
    world = range(len(others))
    return [hops(r, OLD, turns) + hops(r, own.get(r, others), turns=2) for r in world]


WITH_ANOTHER = {
    "an older ring": rings({4: OLDER}),
    "the first ring, all the time": rings({2: OLD}),
    "from the start": [hops(r, OLDER if r == 4 else NEW, turns=2) for r in range(6)],
}


@pytest.mark.parametrize(("case", "rank"), list(zip(WITH_ANOTHER, (4, 2, 4), strict=True)))
def test_the_rank_that_is_a_party_of_all_transfers_that_one_side_makes_is_named(
    case: str, rank: int
) -> None:
    cause = only_cause(diagnose_ops(run(WITH_ANOTHER[case])))
    assert (cause.kind, cause.ranks, cause.difference) == ("p2p_unmatched", [rank], "peer")


def test_the_sentence_and_the_evidence_name_both_sides_of_each_transfer() -> None:
    cause = only_cause(diagnose_ops(run(rings({4: OLDER}))))
    assert cause.summary.startswith(
        "Rank 4 has other partners than the ranks around it: it sends to rank 1 and receives from rank 2, "
        "which do not expect it; ranks 0,5 wait for it."
    )
    assert "how rank 4 and ranks 0,5 choose" in cause.advice and "ring.py:28" in cause.advice
    said = {(e.ranks[0], e.says.partition(" at ")[0]) for e in cause.evidence}
    assert said == {
        (4, "makes send #1 to rank 1"),
        (4, "makes recv #1 from rank 2"),
        (0, "makes recv #1 from rank 4"),
        (5, "makes send #1 to rank 4"),
    }
    assert cause.evidence[0].says.endswith(
        "; rank 1 sends to rank 3 and receives from rank 2 there"
    )


def without(rank: int, programs: list[list[Batch]], at: int) -> list[list[Batch]]:
    """The same, with one call left out."""
    del programs[rank][at]
    return programs


def with_another(rank: int, programs: list[list[Batch]], at: int, to: int) -> list[list[Batch]]:
    """The same, with one call that sends to another rank."""
    batch = programs[rank][at]
    assert batch is not None
    programs[rank][at] = (to, batch[1])
    return programs


NOT_ONE = {
    "two ranks have an older ring": rings({4: OLDER, 1: OLDER}),
    "one call left out where partners change": without(
        0, [all_to_all(r, 4) * 2 for r in range(4)], 1
    ),
    "partners change with each call": with_another(
        1, [all_to_all(r, 4) * 2 for r in range(4)], 1, 0
    ),
    "a partner is in the reduction": without(1, [hops(r, OLD, 4) for r in range(6)], 17),
}


@pytest.mark.parametrize("case", NOT_ONE)
def test_no_rank_is_named_for_its_partners_where_calls_left_out_may_look_so(case: str) -> None:
    verdict = diagnose_ops(run(NOT_ONE[case]))
    assert verdict.status == "hang"
    assert not any(isinstance(found.story, OtherPartners) for found in verdict.findings)


def named(programs: list[list[Batch]]) -> list[int]:
    """By partners alone, whatever histories show."""
    scene = Scene(run(programs), set())
    found = other_partners(scene, build_waits(scene), list(scene.ops))
    return found.ranks if found is not None else []


def test_what_a_peer_has_answered_before_it_went_on_is_no_sign() -> None:
    """Rank 4 turns round one call too early; rank 2 has answered rank 3 and is done, 0 as well."""
    programs = [hops(rank, OLD)[:-1] * 2 for rank in range(6)]
    programs[4][-1] = (3, 5)
    assert named(programs) == [4]


def test_two_ranks_that_do_not_agree_with_one_are_too_few() -> None:
    """Rank 0 receives from rank 2 from the second call on: either of them may have it wrong."""
    programs = [hops(rank, [0, 1, 2, 3]) for rank in range(4)]
    programs[0][1:3] = [(1, 2)] * 2
    assert named(programs) == []


@pytest.mark.parametrize("missing", [0, 1, 2, 5])
def test_records_that_are_missing_name_no_other_rank(missing: int) -> None:
    evidence = run(rings({4: OLDER}))
    evidence.silent = {missing: "no answer"}
    del evidence.ops[missing]
    verdict = diagnose_ops(evidence)
    assert not any(isinstance(found.story, OtherPartners) for found in verdict.findings)


def test_a_ring_that_waits_for_a_rank_outside_is_held_by_that_rank() -> None:
    programs = rings({}, turns=4)
    programs[2] = programs[2][:-4]
    cause = only_cause(diagnose_ops(run(programs)))
    assert cause.ranks == [2] and "other partners" not in cause.summary


def test_a_ring_that_goes_well_names_no_rank() -> None:
    assert not diagnose_ops(run(rings({}))).findings
