"""Ranks that wait at one line of an exchange: whose count is far from that of all others."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis.steps_apart import far_from_all
from hangdoctor.model.capture import Frame, RankCapture
from tests.support.captures import causes, judged, stack, still


def at(rank: int, step: int, line: int = 39) -> RankCapture:
    code = "MPI.Request.Waitall(reqs)"
    own = Frame("halo", "/app/rod.py", line, code, {"step": step})
    return still(rank, [own, *stack(("main", "/app/rod.py", 60))])


def test_who_began_at_an_older_step_is_named() -> None:
    said = judged(at(0, 41), at(1, 40), at(2, 36), at(3, 40))
    assert causes(said) == [("mismatch", [2])]
    assert "waits at halo (rod.py:39) with step=36, ranks 0-1,3 wait there with 40 to 41" in (
        said.summary
    )
    assert said.causes[0].confidence <= 0.55
    assert "See where rank 2 takes step from" in said.causes[0].advice


def test_at_another_line_nothing_shows() -> None:
    assert causes(judged(at(0, 41), at(1, 40), at(2, 36, line=33), at(3, 40))) == []


@pytest.mark.parametrize(
    ("counts", "rank"),
    [
        ([41, 40, 36, 40, 41, 42], 2),
        ([9, 9, 9, 30], 3),
        ([9, 8, 7, 6], -1),  # each waits for the next one
        ([9, 9, 8, 9], -1),
        ([9, 9, 4, 4], -1),
        ([2, 5, 9, 5], -1),
        ([7, 5, 5, 3], -1),
    ],
)
def test_only_one_that_is_further_off_than_the_others_among_themselves(
    counts: list[int], rank: int
) -> None:
    assert far_from_all(dict(enumerate(counts))) == rank
