"""Where the stacks of ranks on two sides part: one pair of lines of one function, or not said."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis import parting
from hangdoctor.diagnosis.case import Case, open_case
from hangdoctor.diagnosis.draft import Draft
from hangdoctor.diagnosis.findings import Finding, InOther, Op
from hangdoctor.diagnosis.view import Look, RankView
from hangdoctor.model.capture import Frame, JobCapture
from hangdoctor.stacks.place_rules import Place

HERE, THERE = 40, 44


def stack(line: int, function: str = "step", file: str = "/app/train.py") -> list[Frame]:
    return [Frame("main", "/app/train.py", 90), Frame(function, file, line)]


def view(rank: int, path: list[Frame], capture: object) -> RankView:
    look = Look(path=path)
    return RankView(rank, "n1", 100 + rank, capture, Place("other"), look=look)  # type: ignore[arg-type]


def parted(mine: list[list[Frame]], theirs: list[list[Frame]]) -> tuple[Frame, Frame] | None:
    """The parting of ranks 0.. with the stacks `mine` from those after them with `theirs`."""
    case: Case = open_case(JobCapture("j", taken=1.0))
    case.views = [view(rank, path, None) for rank, path in enumerate([*mine, *theirs])]
    ranks = list(range(len(mine)))
    others = tuple(range(len(mine), len(mine) + len(theirs)))
    finding = Finding("mismatch", ranks, InOther("other", Op("broadcast"), others), 0.9)
    parting.run(case, Draft(findings=[finding]))
    return finding.parting


def test_all_of_one_side_at_one_line_and_all_of_the_other_at_another() -> None:
    assert parted([stack(HERE)] * 2, [stack(THERE)] * 3) == (stack(HERE)[1], stack(THERE)[1])


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ([stack(HERE)], [stack(THERE), stack(60)]),
        ([stack(HERE), stack(60)], [stack(THERE)]),
        ([stack(HERE)], [stack(THERE), stack(THERE, function="evaluate")]),
        ([stack(HERE)], [stack(HERE)]),
        ([stack(HERE, file="<string>")], [stack(THERE, file="/app/train.py")]),
        (
            [stack(HERE, file="/usr/lib/python3/dist-packages/torch/a.py")],
            [stack(THERE, file="/usr/lib/python3/dist-packages/torch/a.py")],
        ),
        ([], [stack(THERE)]),
    ],
    ids=["theirs-differ", "mine-differ", "function", "same-line", "file", "not-the-users", "none"],
)
def test_nothing_is_said_where_it_is_not_one_pair_of_lines(
    mine: list[list[Frame]], theirs: list[list[Frame]]
) -> None:
    assert parted(mine, theirs) is None


def test_of_thousands_of_ranks_each_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    whole = parting._difference

    def counted(one: list[Frame], other: list[Frame]) -> tuple[Frame, Frame] | None:
        compared.append(1)
        return whole(one, other)

    monkeypatch.setattr(parting, "_difference", counted)
    assert parted([stack(HERE)] * 2000, [stack(THERE)] * 2000) is not None
    assert len(compared) < 4000
