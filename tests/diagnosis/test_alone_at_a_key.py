"""Of a job that is over: one rank waits for a key of the store, which none has set. Where all others wait
for it in one operation, it is the one to look at; else nothing shows who was to set the key.
"""

from __future__ import annotations

from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.operations import Group, Operation, RankOps, group_uid
from hangdoctor.readers.blackbox import Contents
from tests.support.ended_boxes import ended, left, of_column

ALL = [0, 1, 2, 3]
BEGUN = 1010.0


def operation(op: str, seq: int, *, group: list[int] | None = None, detail: str = "") -> Operation:
    uid = group_uid(group) if group else ""
    return Operation(uid, seq, op, "entered", entered_s=BEGUN, detail=detail)


def box(rank: int, last: Operation) -> Contents:
    before = [
        Operation(group_uid(ALL), n, "all_reduce", "done", entered_s=1000.0 + n, left_s=1000.1 + n)
        for n in range(1, 9)
    ]
    contents = left(rank)
    groups = [Group(group_uid(ALL), ALL)]
    contents.ops = RankOps(rank, 4, groups=groups, operations=[*before, last], heartbeat_s=1039.0)
    return contents


def of(*last: Operation) -> Diagnosis:
    boxes = [box(rank, operation) for rank, operation in enumerate(last)]
    return of_column(boxes, [ended(rank, -15, 1040.0) for rank in ALL])


KEY = operation("store_wait", 3, detail="mix/2")
REDUCE = operation("all_reduce", 9, group=ALL)


def test_the_one_for_which_all_others_wait_is_named() -> None:
    found = of(REDUCE, KEY, REDUCE, REDUCE)
    assert found.status == "hang"
    assert [cause.ranks for cause in found.causes] == [[1]]
    assert "mix/2" in found.summary


def test_of_two_that_wait_for_it_none_is() -> None:
    found = of(REDUCE, KEY, KEY, REDUCE)
    assert not found.causes


def test_where_the_others_wait_in_two_operations_none_is() -> None:
    apart = operation("all_reduce", 3, group=[2, 3])
    found = of(REDUCE, KEY, apart, apart)
    assert [1] not in [cause.ranks for cause in found.causes]
