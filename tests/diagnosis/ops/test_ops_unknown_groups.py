"""Operations of groups that the records do not name: no one is accused for them, and they are
matched with no other's.
"""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.model.operations import Group, Operation, RankOps, group_uid, unknown_group
from tests.support.ops_programs import notes

WORLD = group_uid(range(4))
PAIR = group_uid([0, 1])


def rank(number: int, *operations: Operation, more: tuple[Group, ...] = ()) -> RankOps:
    groups = [Group(WORLD, [0, 1, 2, 3], "default_pg"), *more]
    return RankOps(number, 4, "blackbox", groups=groups, operations=list(operations))


def entered(group: str, seq: int = 1, op: str = "all_reduce") -> Operation:
    return Operation(group, seq, op, entered_s=100.0)


def done(group: str, seq: int = 1, op: str = "all_reduce") -> Operation:
    return Operation(group, seq, op, state="done", entered_s=90.0, left_s=91.0)


@pytest.mark.parametrize(
    "named_by",
    ["no record", "one uid"],
    ids=["a full table of version 1", "more groups than the table holds"],
)
def test_a_wait_in_a_group_that_nothing_names_accuses_no_rank(named_by: str) -> None:
    uid = (
        (lambda r: unknown_group(r, 1))
        if named_by == "no record"
        else (lambda r: "00000000000000ff")
    )
    more = (Group(uid(0)),) if named_by == "one uid" else ()
    ops = {r: rank(r, done(WORLD), entered(uid(r), 7), more=more) for r in (0, 1)}
    ops |= {r: rank(r, done(WORLD), entered(WORLD, 2)) for r in (2, 3)}
    for earlier in ({}, ops):
        verdict = diagnose_ops(OpsEvidence(ops, earlier, world_size=4))
        assert (verdict.status, verdict.findings) == ("unknown", [])
        assert any(
            "0-1 wait in operations of groups without a record of their members (rank 0: all_reduce #7)"
            in n
            for n in notes(verdict)
        )


def test_what_the_other_records_show_is_still_found() -> None:
    """Rank 1 waits for an unknown rank; rank 3 is outside of everything, and ranks 0 and 2 wait for
    it.
    """
    ops = {
        0: rank(0, entered(WORLD)),
        1: rank(1, entered(unknown_group(1, 1), 9)),
        2: rank(2, entered(WORLD)),
        3: rank(3),
    }
    ops[3].operations = [done(group_uid([3]))]
    ops[3].groups.append(Group(group_uid([3]), [3], "alone"))
    (cause,) = diagnose_ops(OpsEvidence(ops, ops, world_size=4)).findings
    assert (cause.kind, cause.ranks) == ("not_entered", [3])


def test_done_operations_of_ended_groups_are_no_disagreement() -> None:
    """Numbers and operations of forgotten groups differ from rank to rank, as they may."""
    past = [done(unknown_group(0, 1), n, "broadcast") for n in range(1, 40)]
    ops = {r: rank(r, *(past if r == 0 else ()), entered(WORLD)) for r in range(3)}
    ops[3] = rank(3, done(PAIR, 5), more=(Group(PAIR, [0, 1], "pair"),))
    (cause,) = diagnose_ops(OpsEvidence(ops, ops, world_size=4)).findings
    assert (cause.kind, cause.ranks) == ("not_entered", [3])
