"""A rank waits in a barrier to gloo's limit and holds what the others wait for; when it fails, they go
on to their own barrier, and lose it there.
"""

from __future__ import annotations

from msgspec import structs

from hangdoctor.model.operations import Group, Operation, group_uid
from hangdoctor.model.process_end import ProcessEnd
from hangdoctor.readers import ended_ranks
from hangdoctor.readers.blackbox import Contents
from hangdoctor.readers.ended_operations import as_at_the_limit
from tests.support.ended_boxes import LIMIT, LOST, ended, left

ALL = [0, 1, 2]
FAILED = 1050.0
START = Operation(group_uid(ALL), 1, "init_process_group", "done", entered_s=1000.0, left_s=1001.0)
BARRIER = Operation(group_uid(ALL), 1, "barrier", "done", entered_s=1005.0, left_s=FAILED)


def box(rank: int, barrier: Operation, text: str) -> Contents:
    contents = left(rank, barrier.left_s, text)
    contents.ops.groups = [Group(group_uid(ALL), ALL)]
    contents.ops.operations = [START, structs.replace(barrier, failed=True)]
    return contents


def at_the_limit(*boxes: Contents) -> None:
    ends: list[ProcessEnd] = [ended(rank, 1, FAILED + 1.0) for rank in ALL]
    logs = ended_ranks.facts_of(list(boxes), ends)
    assert logs is not None
    as_at_the_limit(list(boxes), logs)


def test_who_went_on_in_the_moment_of_the_limit_was_freed_by_it() -> None:
    """What it entered then is no part of the hang."""
    waits = box(0, BARRIER, LIMIT)
    late = structs.replace(BARRIER, entered_s=FAILED + 0.01, left_s=FAILED + 0.02)
    freed = box(1, late, LOST)
    later = box(2, structs.replace(late, entered_s=FAILED + 3.0, left_s=FAILED + 3.1), LOST)
    at_the_limit(waits, freed, later)
    assert [o.state for o in waits.ops.operations] == ["done", "entered"] and not waits.ops.freed
    assert freed.ops.operations == [START] and freed.ops.freed
    assert later.ops.operations == [START] and not later.ops.freed, "it came by itself"


def sent(entered_s: float, left_s: float) -> Operation:
    """An isend to rank 0 whose handle ended then."""
    sends = Operation(group_uid(ALL), 2, "send", "done", peer=0, asynchronous=True)
    sends.entered_s, sends.left_s = entered_s, left_s
    return sends


def test_a_handle_that_was_lost_at_the_end_was_waited_for_until_then() -> None:
    """The wait for an isend fails when its peer is ended, and was no longer its rank's last call."""
    sends = sent(1004.0, 1049.5)
    gets = Operation(group_uid(ALL), 2, "recv", "done", peer=1, entered_s=1004.1, left_s=1004.2)
    beside = box(2, sends, LOST)
    beside.ops.operations = [*beside.ops.operations, gets]
    at_the_limit(box(0, BARRIER, LIMIT), box(1, BARRIER, LIMIT), beside)
    _, send, recv = beside.ops.operations
    assert (send.state, send.waited, send.failed) == ("entered", True, False)
    assert recv.state == "done"


def test_handles_that_an_exception_let_go_of_had_not_ended() -> None:
    """The first of a batch reached the limit, and the others went with the function that held them."""
    sends = sent(1040.0, FAILED)
    gets = structs.replace(sends, op="recv", left_s=FAILED + 0.5)
    came = structs.replace(gets, peer=2, left_s=1041.0)
    waits = box(1, structs.replace(sends, failed=True), LIMIT)
    waits.ops.operations = [START, came, structs.replace(sends, failed=True), gets]
    at_the_limit(box(0, BARRIER, LIMIT), waits, box(2, BARRIER, LIMIT))
    _, done, send, recv = waits.ops.operations
    assert (send.state, send.waited) == ("entered", True)
    assert (recv.state, recv.waited) == ("entered", False)
    assert done.state == "done"
