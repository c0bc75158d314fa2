"""Ranks that sleep by their own clock in each turn of a loop: whether the loop goes on."""

from __future__ import annotations

from hangdoctor.model.capture import Frame, RankCapture
from tests.support.captures import C10D, captured, judged, sample, stack, thread

LOGGER = "/site-packages/torch/distributed/c10d_logger.py"
ASLEEP = stack(("Arm.step", "/app/robots.py", 27), ("main", "/app/robots.py", 52))
LATER = stack(("Arm.park", "/app/robots.py", 90), ("main", "/app/robots.py", 52))
LOOKS = stack(
    ("exists", "/usr/lib/python3.11/genericpath.py", 9), *[("Arm.step", "/app/robots.py", 26)]
)


def reduces(group: str = "world") -> list[Frame]:
    wrapped = Frame("_exception_logger.<locals>.wrapper", LOGGER, 83, group=group)
    return [Frame("all_reduce", C10D, 9), wrapped, *stack(("main", "/app/robots.py", 61))]


def seen(
    rank: int, *stacks: list[Frame], wakes: int = 20, call: str = "clock_nanosleep"
) -> RankCapture:
    """A rank by its stack in each sample; it wakes up so often between two of them."""
    samples = [
        sample(float(n), thread(frames, syscall=call, switches=wakes * n))
        for n, frames in enumerate(stacks)
    ]
    return captured(rank, samples)


PASSED = [ASLEEP, reduces(), ASLEEP]
SLEEPS = [ASLEEP, ASLEEP, ASLEEP]


def test_ranks_that_passed_a_collective_of_all_show_that_all_go_on() -> None:
    said = judged(seen(0, *SLEEPS), seen(1, *PASSED), seen(2, *SLEEPS), seen(3, *SLEEPS))
    assert said.status == "healthy"
    assert said.summary.startswith("No hang seen: rank 1 left all_reduce in main (robots.py:61)")
    assert "all 4 ranks ran meanwhile" in said.summary


def test_where_all_sleep_at_one_line_it_cannot_be_told() -> None:
    assert judged(*(seen(rank, *SLEEPS) for rank in range(4))).status == "unknown"


def test_a_loop_that_looks_for_a_file_has_not_gone_on() -> None:
    one = seen(1, ASLEEP, LOOKS, ASLEEP)
    assert judged(seen(0, *SLEEPS), one, seen(2, *SLEEPS), seen(3, *SLEEPS)).status == "unknown"


def test_one_that_sleeps_elsewhere_or_seldom_or_waits_may_be_stuck() -> None:
    others = [seen(0, *SLEEPS), seen(1, *PASSED), seen(2, *SLEEPS)]
    elsewhere = seen(3, LATER, LATER, LATER)
    seldom = seen(3, *SLEEPS, wakes=2)
    blocked = seen(3, *SLEEPS, call="futex")
    for odd in (elsewhere, seldom, blocked, seen(3, reduces(), reduces(), reduces(), wakes=0)):
        assert judged(*others, odd).status != "healthy"


def test_a_collective_of_a_part_shows_nothing_of_the_others() -> None:
    one = seen(1, ASLEEP, reduces("sub"), ASLEEP)
    assert judged(seen(0, *SLEEPS), one, seen(2, *SLEEPS), seen(3, *SLEEPS)).status == "unknown"


def test_one_that_is_in_the_collective_still_has_not_passed_it() -> None:
    one = seen(1, ASLEEP, ASLEEP, reduces())
    assert judged(seen(0, *SLEEPS), one, seen(2, *SLEEPS), seen(3, *SLEEPS)).status != "healthy"
