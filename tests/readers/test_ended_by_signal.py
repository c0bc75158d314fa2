"""A job that hangs is asked to end, and its ranks do not end of it at once: what they enter from then on is
no part of the hang; and what a rank does that was asked for something else is.
"""

from __future__ import annotations

from hangdoctor.model.log_facts import PythonError
from hangdoctor.model.operations import Group, Mark, Operation, group_uid
from hangdoctor.model.process_end import ProcessEnd
from hangdoctor.readers import ended_ranks
from hangdoctor.readers.blackbox import Contents
from hangdoctor.readers.box_signals import CaughtSignal
from hangdoctor.readers.ended_by_signal import as_at_the_signal
from tests.support.ended_boxes import ended, left

ALL = [0, 1, 2]
HUNG, ASKED, KILLED = 1020.0, 1050.0, 1080.0


def operation(seq: int, entered: float, done: float = 0.0, *, failed: bool = False) -> Operation:
    return Operation(
        group_uid(ALL),
        seq,
        "all_reduce",
        "done" if done else "entered",
        entered_s=entered,
        left_s=done,
        failed=failed,
    )


def steps(count: int, last: float) -> list[Operation]:
    first = last - 0.2 * count
    return [operation(n + 1, first + 0.2 * n, first + 0.2 * n + 0.1) for n in range(count)]


def box(rank: int, *later: Operation, name: str = "SIGTERM", at: float = ASKED) -> Contents:
    contents = left(rank)
    contents.box.created_s = 1000.0
    contents.box.heartbeat_s = KILLED
    contents.ops.groups = [Group(group_uid(ALL), ALL)]
    contents.ops.operations = [*steps(10, HUNG), *later]
    contents.signals = [CaughtSignal(name, at, at)]
    return contents


def waits(rank: int, *, name: str = "SIGTERM", at: float = ASKED) -> Contents:
    return box(rank, operation(11, HUNG), name=name, at=at)


def settled(boxes: list[Contents], ends: list[ProcessEnd] | None = None) -> float:
    found = ends or [ended(rank, -9, KILLED) for rank in ALL]
    logs = ended_ranks.facts_of(boxes, found)
    return as_at_the_signal(boxes, logs, found)


def last(contents: Contents) -> tuple[int, str]:
    operation = contents.ops.operations[-1]
    return operation.seq, operation.state


def test_what_a_handler_entered_is_left_out() -> None:
    handler = operation(11, ASKED + 0.01, ASKED + 0.02)
    boxes = [waits(0), waits(1), box(2, handler)]
    assert settled(boxes) == ASKED
    assert [last(b) for b in boxes] == [(11, "entered"), (11, "entered"), (10, "done")]


def test_what_the_handler_of_another_completed_had_not_ended() -> None:
    """The one enters what all wait for, and they go on to the next."""
    went_on = [operation(11, HUNG, ASKED + 0.1), operation(12, ASKED + 0.2)]
    boxes = [box(0, *went_on), box(1, *went_on), box(2, operation(11, ASKED + 0.1, ASKED + 0.2))]
    assert settled(boxes) == ASKED
    assert [last(b) for b in boxes] == [(11, "entered"), (11, "entered"), (10, "done")]


def test_a_handle_that_failed_then_was_waited_for() -> None:
    lost = Operation(
        group_uid(ALL),
        1,
        "recv",
        "done",
        peer=1,
        asynchronous=True,
        entered_s=HUNG,
        left_s=ASKED + 1,
    )
    lost.failed = True
    boxes = [box(0, lost), waits(1), waits(2)]
    assert settled(boxes) == ASKED
    received = boxes[0].ops.operations[-1]
    assert (received.state, received.waited, received.failed) == ("started", True, False)


def test_a_job_that_ran_until_the_signal_is_left_as_it_is() -> None:
    """Then what its handlers do may be what hangs."""
    handler = operation(11, HUNG + 0.31)
    boxes = [waits(0, at=HUNG + 0.3), waits(1, at=HUNG + 0.3), box(2, handler, at=HUNG + 0.3)]
    assert settled(boxes) == 0.0
    assert last(boxes[2]) == (11, "entered")


def test_a_signal_after_which_the_training_went_on_is_none_of_the_end() -> None:
    """Jobs write what they do when they are asked by SIGUSR1, in a slow first epoch, too."""
    later = steps(40, ASKED + 20.0)
    boxes = [box(rank, *later, name="SIGUSR1") for rank in ALL]
    assert settled(boxes) == 0.0 and len(boxes[0].ops.operations) == 50
    stepped = [waits(rank, name="SIGUSR1") for rank in ALL]
    stepped[1].stepped_s = ASKED + 10.0
    assert settled(stepped) == 0.0
    marked = [waits(rank, name="SIGUSR1") for rank in ALL]
    marked[2].ops.marks = [Mark("iteration", ASKED + 10.0, 12)]
    assert settled(marked) == 0.0


def test_the_first_signal_that_found_it_hanging_counts() -> None:
    """One is sent each minute, and the last before the end."""
    boxes = [waits(rank, name="SIGUSR1") for rank in ALL]
    for contents in boxes:
        contents.signals = [CaughtSignal("SIGUSR1", HUNG - 1.0, ASKED)]
    assert settled(boxes) == ASKED


def test_a_clock_of_the_programs_own_is_no_one_who_asks() -> None:
    assert settled([waits(rank, name="SIGALRM") for rank in ALL]) == 0.0


def test_what_a_handler_raises_is_no_cause() -> None:
    boxes = [waits(0), waits(1), box(2)]
    boxes[2].box.ended_s, boxes[2].box.end_text = ASKED + 0.5, "Preempted\nasked to end"
    ends = [ended(0, -9, KILLED), ended(1, -9, KILLED), ended(2, 1, ASKED + 1.0)]
    logs = ended_ranks.facts_of(boxes, ends)
    assert logs is not None and as_at_the_signal(boxes, logs, ends) == ASKED
    [error] = [fact for fact in logs.facts if isinstance(fact, PythonError)]
    assert error.role == "consequence"


def test_an_error_before_the_signal_stays_the_first() -> None:
    boxes = [waits(0), waits(1), box(2)]
    boxes[2].box.ended_s, boxes[2].box.end_text = HUNG + 0.5, "ValueError\nno such sample"
    ends = [ended(0, -9, KILLED), ended(1, -9, KILLED), ended(2, 1, HUNG + 1.0)]
    logs = ended_ranks.facts_of(boxes, ends)
    assert logs is not None and as_at_the_signal(boxes, logs, ends) == ASKED
    [error] = [fact for fact in logs.facts if isinstance(fact, PythonError)]
    assert error.role == "cause"


def without_signals(*boxes: Contents) -> list[Contents]:
    for contents in boxes:
        contents.signals = []
    return list(boxes)


def test_a_child_that_is_asked_first_frees_the_rank_that_waits_for_it() -> None:
    """Where all end at once, what the ranks do in between is no progress."""
    freed = operation(11, ASKED + 0.1, ASKED + 0.2)
    went_on = operation(11, HUNG, ASKED + 0.2)
    boxes = without_signals(box(0, went_on), box(1, went_on), box(2, freed))
    child = ProcessEnd(pid=999, node="n1", code=-15, at=ASKED)
    ends = [child, *(ended(rank, -9, ASKED + 1.0) for rank in ALL)]
    assert settled(boxes, ends) == ASKED
    assert [last(b) for b in boxes] == [(11, "entered"), (11, "entered"), (10, "done")]


def test_a_child_that_was_asked_long_before_says_nothing() -> None:
    boxes = without_signals(waits(0), waits(1), box(2))
    child = ProcessEnd(pid=999, node="n1", code=-15, at=ASKED - 10.0)
    ends = [child, *(ended(rank, -9, ASKED + 1.0) for rank in ALL)]
    assert settled(boxes, ends) == 0.0


def test_exits_without_any_box_say_nothing_of_when_it_hung() -> None:
    ends = [ended(0, -15, KILLED, boxed=False)]
    assert as_at_the_signal([], ended_ranks.facts_of([], ends), ends) == 0.0


def without_signal(*boxes: Contents) -> list[Contents]:
    for contents in boxes:
        contents.signals = []
    return list(boxes)


def test_who_went_on_between_the_last_heartbeat_and_the_kill_had_not_come() -> None:
    """Its child was killed a moment before it."""
    late = box(2, operation(11, KILLED + 0.2))
    boxes = without_signal(waits(0), waits(1), late)
    assert as_at_the_signal(boxes, None, []) == KILLED
    assert [last(b) for b in boxes] == [(11, "entered"), (11, "entered"), (10, "done")]


def test_a_job_that_went_on_until_it_was_killed_is_left_as_it_is() -> None:
    boxes = without_signal(*(box(rank, operation(11, KILLED + 0.2)) for rank in ALL))
    assert as_at_the_signal(boxes, None, []) == 0.0
    boxes = without_signal(waits(0), waits(1), box(2, operation(11, KILLED - 20.0)))
    assert as_at_the_signal(boxes, None, []) == 0.0
    assert last(boxes[2]) == (11, "entered")
