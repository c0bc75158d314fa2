"""Records that end in two calls, and the lines that show which of the two readings holds."""

from __future__ import annotations

import pytest
from msgspec import structs

from hangdoctor.diagnosis import fusion, wording
from hangdoctor.diagnosis.case import open_case
from hangdoctor.diagnosis.draft import Draft
from hangdoctor.diagnosis.findings import Apart, Diverged, Finding, GroupRef, InOther, Op
from hangdoctor.diagnosis.position import is_rounds_behind
from hangdoctor.model.capture import Frame, JobCapture

WORLD = GroupRef(axis="world")
LIBRARY = "/venv/lib/python3.11/site-packages/deepspeed/runtime"
MINE = Op("all_reduce", 127, WORLD, site=f"average ({LIBRARY}/zero/stage_1_and_2.py:2384)")
THEIRS = Op("barrier", 5, WORLD, site=f"save ({LIBRARY}/engine.py:4900)")
HERE, THERE = Frame("main", "/home/me/fit.py", 65), Frame("update", "/home/me/fit.py", 28)


EITHER = Diverged("either", MINE, THEIRS, 2)


def judged(how: Apart, there: Frame = THERE, story: Diverged = EITHER) -> str:
    """What is said of rank 1, of which the records leave it open."""
    by_ops = Finding("order", [1], story, 0.95)
    seen = InOther(how, Op("all_reduce", frame=HERE), (0, 2), Op("barrier", frame=there))
    draft = Draft(by_stacks=[Finding("order", [1], seen, 0.55, frame=HERE)])
    [finding] = fusion.join(open_case(JobCapture("j")), draft, [by_ops])
    return wording.summary(finding)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (Apart.AHEAD, "skipped barrier #5 (fit.py:28) and went on to all_reduce #127 (fit.py:65)"),
        (Apart.PAST, "skipped barrier #5 (fit.py:28) and went on to all_reduce #127 (fit.py:65)"),
        (Apart.CALLED_ALONE, "made one call too many, all_reduce #127 (fit.py:65)"),
        (Apart.SMALLER_SIDE, "entered all_reduce #127 (fit.py:65) where rank 2 entered barrier #5 (fit.py:28): one call left out"),
    ],
)  # fmt: skip
def test_lines_decide_what_records_leave_open(how: Apart, says: str) -> None:
    said = judged(how)
    assert says in said
    assert "it is in main" not in said, "its line is said already"


def test_a_later_line_does_not_show_that_a_call_made_again_was_left_out() -> None:
    again = structs.replace(Diverged("either", MINE, THEIRS, 2), again=True)
    said = judged(Apart.AHEAD, story=again)
    assert "twice in a row" in said and "one call too many, or a round left out" in said
    assert "made one call too many" in judged(Apart.CALLED_ALONE, story=again)


def test_who_is_in_an_earlier_round_has_left_out_no_call_of_a_later_one() -> None:
    """One batch more of the validation, while the others begin the next epoch."""

    def path(epoch: int, line: int) -> list[Frame]:
        return [Frame("main", "/home/me/fit.py", line, values={"epoch": epoch}, counts="epoch")]

    late, early = path(0, 57), path(1, 49)
    assert is_rounds_behind(late, early) and not is_rounds_behind(early, late)
    left = [Frame("main", "/home/me/fit.py", 57, values={"i": 3}, counts="step")]
    inside = [Frame("main", "/home/me/fit.py", 49, values={"i": 5}, counts="i")]
    assert not is_rounds_behind(left, inside), "a loop that it has left"


def test_a_librarys_line_is_no_users() -> None:
    said = judged(Apart.AHEAD, Frame("save", f"{LIBRARY}/engine.py", 4900))
    assert "skipped barrier #5 (engine.py:4900)" in said
