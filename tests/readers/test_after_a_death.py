"""One rank dies of itself while the others are in calls that no box records; these lose the
connection, catch that, and go on to further calls.
"""

from __future__ import annotations

from hangdoctor.model.operations import Group, Operation, OpState, group_uid
from hangdoctor.readers.blackbox import Contents
from tests.support.ended_boxes import ended, left, of_column

ALL = [0, 1, 2, 3]
DIED = 1040.0


def rank_of(rank: int, entered_s: float, *, state: OpState = "entered") -> Contents:
    """Its gradients are reduced without a record; its one operation since the start is this."""
    contents = left(rank)
    group = Group(group_uid(ALL), ALL)
    start = Operation(group.uid, 1, "barrier", "done", entered_s=1000.0, left_s=1000.1)
    contents.ops.groups, contents.ops.operations = [group], [start]
    contents.ops.world_size, contents.ops.steps, contents.ops.iteration = 4, 11, 11
    contents.ops.heartbeat_s = contents.box.heartbeat_s = DIED
    if entered_s:
        call = Operation(group.uid, 2, "all_reduce", state, entered_s=entered_s)
        call.site = "score (accum.py:17)"
        call.failed, call.left_s = (True, entered_s + 0.01) if state == "done" else (False, 0.0)
        contents.ops.operations = [start, call]
    return contents


def judged(*boxes: Contents) -> list[tuple[str, list[int]]]:
    ends = [ended(3, -6, at=DIED), *(ended(rank, -15, at=DIED + 0.3) for rank in (0, 1, 2))]
    return [(cause.kind, cause.ranks) for cause in of_column(list(boxes), ends).causes]


def test_calls_that_others_came_to_after_the_death_blame_none_that_did_not() -> None:
    later = rank_of(0, DIED + 0.1), rank_of(1, 0.0), rank_of(2, DIED + 0.05, state="done")
    assert judged(*later, rank_of(3, 1039.8)) == [("order", [3])]


def test_calls_from_before_it_still_count() -> None:
    before = rank_of(0, 1039.7), rank_of(1, 0.0), rank_of(2, 1039.8)
    assert judged(*before, rank_of(3, 1039.8)) == [("not_entered", [1])]
