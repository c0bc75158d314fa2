"""What gloo's dumps cannot decide: real jobs with two culprits leave the same records."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.accuracy.coordinates import draw
from benchmarks.accuracy.real_twins import TWINS, compare
from benchmarks.accuracy.score import Result, judge
from hangdoctor.model.diagnosis import Cause, Diagnosis, Job, Status


@pytest.mark.full
@pytest.mark.timeout(300)
def test_both_jobs_of_a_pair_leave_the_same_records() -> None:
    for pair, one, other in compare(iter(TWINS)):
        assert one and one == other, pair.why
        assert pair.one.ranks != pair.other.ranks or pair.other.kind.startswith("long_")


def said(kind: str, seed: int, named: list[int], mode: str = "dumps only") -> Result:
    """What the score makes of a verdict on these ranks."""
    causes = [Cause("not_entered", named, [], 0.7, summary="")] if named else []
    status: Status = "hang" if named else "unknown"
    verdict = Diagnosis(status, Job("", 8, []), "", causes)
    case = draw(kind, seed)
    return judge(Result("real", mode, kind, seed, case.place), verdict, case.expected(mode))


def test_a_set_of_neighbour_stages_that_holds_the_culprit_is_exact() -> None:
    [culprit] = draw("sleep", 1).ranks
    both = sorted([culprit, culprit ^ 4])
    assert said("sleep", 1, [culprit]).exact and said("sleep", 1, both).exact
    assert said("sleep", 1, both).undecidable
    assert said("sleep", 1, [culprit ^ 4]).victim
    assert not said("sleep", 1, sorted([culprit, culprit ^ 1])).exact
    assert not said("sleep", 1, both, mode="black box").exact


def test_where_operations_are_counted_the_culprit_alone_is_exact() -> None:
    [culprit] = draw("skipped", 1).ranks
    assert said("skipped", 1, [culprit]).exact
    assert not said("skipped", 1, sorted([culprit, culprit ^ 4])).exact


def test_no_rank_is_right_where_nothing_is_recorded_of_it() -> None:
    assert said("never_started", 1, []).exact
    assert said("never_started", 1, [(draw("never_started", 1).ranks[0] + 1) % 8]).victim
    assert not said("sleep", 1, []).exact
