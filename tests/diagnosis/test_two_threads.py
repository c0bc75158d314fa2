"""Ranks of which two threads are in collectives at once: their order differs between ranks."""

from __future__ import annotations

import pytest

from hangdoctor.model.capture import Frame, RankCapture
from tests.support.captures import C10D, LOAD, captured, causes, judged, sample, stack, thread

LOGGER = "/site-packages/torch/distributed/c10d_logger.py"
THREADING = "/usr/lib/python3.11/threading.py"
RUN = ("Thread.run", THREADING, 975)


def call(
    op: str, user: tuple[str, str, int], *outer: tuple[str, str, int], **more: str
) -> list[Frame]:
    """A collective at a line of the user's; `group` and `code` as a capture has them."""
    group, code = more.get("group", "world"), more.get("code", "")
    wrapped = Frame("_exception_logger.<locals>.wrapper", LOGGER, 83, group=group)
    return [Frame(op, C10D, 9), wrapped, Frame(*user, code), *stack(*outer)]


MAIN = call("all_reduce", ("main", "/app/train.py", 71))
WRITER = ("Writer.write", "/app/train.py", 35)
BARRIER = call("barrier", WRITER, RUN)
PUT = stack(("sleep_there", "/app/train.py", 31), WRITER, RUN)


def two(rank: int, main: list[Frame] = MAIN, beside: list[Frame] = BARRIER) -> RankCapture:
    both = thread(main, syscall="futex"), thread(beside, tid=21, name="writer")
    return captured(rank, [sample(at, *both) for at in (0.0, 1.0)])


def test_all_have_both_and_no_rank_is_at_fault_alone() -> None:
    said = judged(*map(two, range(4)))
    assert causes(said) == [("order", [0, 1, 2, 3])]
    [cause] = said.causes
    assert "two threads in collectives at once, all_reduce (train.py:71)" in cause.summary
    assert "and barrier (train.py:35): most likely not every rank called" in cause.summary
    assert "network" not in cause.summary and cause.confidence <= 0.6
    assert any("barrier" in clue.says for clue in cause.evidence)
    assert "group of its own" in cause.advice


def test_the_one_whose_thread_has_not_come_has_another_order() -> None:
    said = judged(two(0), two(1), two(2, beside=PUT), two(3))
    assert causes(said) == [("order", [2])]
    assert "ranks 0-1,3 have another thread in barrier (train.py:35)" in said.summary


def test_one_that_is_elsewhere_in_its_own_thread_is_missing() -> None:
    said = judged(two(0), two(1), two(2, main=LOAD), two(3))
    assert causes(said) == [("not_entered", [2])], said.summary


def test_half_of_the_ranks_decide_nothing() -> None:
    said = judged(two(0), two(1), two(2, beside=PUT), two(3, beside=PUT))
    assert "two threads" not in said.summary


OWN = call("barrier", WRITER, RUN, group="sub", code="dist.barrier(group=self.group)")
AUTOGRADS = call("barrier", WRITER)  # no thread that Python started
STORE = [Frame("wait", "/app/store.py", 7, "store.wait(['key'])"), *stack(WRITER, RUN)]


@pytest.mark.parametrize(
    "beside", [OWN, call("barrier", WRITER, RUN, group="sub"), AUTOGRADS, STORE]
)
def test_a_thread_with_a_group_of_its_own_or_none_is_no_such_fault(beside: list[Frame]) -> None:
    said = judged(*(two(rank, beside=beside) for rank in range(4)))
    assert "two threads" not in said.summary, said.summary


def test_a_thread_that_gets_on_is_no_such_fault() -> None:
    moving = []
    for rank in range(4):
        then, now = (thread(frames, tid=21, name="writer") for frames in (PUT, BARRIER))
        moving.append(
            captured(rank, [sample(0.0, thread(MAIN), then), sample(1.0, thread(MAIN), now)])
        )
    assert "two threads" not in judged(*moving).summary


def test_where_nothing_shows_the_groups_it_is_said_so() -> None:
    """As in py-spy's text, which has no variables."""
    main = call("all_reduce", ("main", "/app/train.py", 71), group="")
    beside = call("barrier", WRITER, RUN, group="")
    said = judged(*(two(rank, main, beside) for rank in range(4)))
    assert causes(said) == [("order", [0, 1, 2, 3])]
    assert "if of one group" in said.summary and said.causes[0].confidence < 0.5


def test_one_name_may_be_one_group_and_two_are_two() -> None:
    named = "dist.all_reduce(x, group=self.dp)"
    main = call("all_reduce", ("main", "/app/train.py", 71), group="sub", code=named)
    for name, same in (("self.dp", True), ("self.io", False), ("dist.group.WORLD", False)):
        line = f"dist.barrier(group={name})"
        beside = call("barrier", WRITER, RUN, group="sub", code=line)
        said = judged(*(two(rank, main, beside) for rank in range(4)))
        assert ("two threads" in said.summary) is same, name
