"""Some ranks are silent: which is named, the one that made other calls or one that only left no evidence.

Each case is one in which an innocent silent rank was named.
"""

from __future__ import annotations

import pytest

from benchmarks.accuracy.simulate import Case, Settings, simulate
from benchmarks.accuracy.simulated import capture_of
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.layout import Layout

SMALL, LARGE = Layout(dp=2, pp=2, tp=2), Layout(dp=4, pp=4, tp=8)


def verdict_on(kind: str, layout: Layout, seed: int) -> tuple[Diagnosis, Case]:
    case = simulate(kind, layout, seed, Settings(silent=0.1))
    return diagnose(capture_of(case.after, case.before, world=layout.world_size)), case


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        # the silent rank waits in an operation for another silent one, which waits for the culprit
        ("skipped", 20),
        ("skipped", 25),
        ("extra", 22),
        # the culprit is in no small group with a silent rank: it is in the ring that they close
        ("missing_send", 24),
    ],
)
def test_a_known_rank_that_made_other_calls_is_named_and_no_silent_one(
    kind: str, seed: int
) -> None:
    verdict, case = verdict_on(kind, LARGE, seed)
    assert [c.ranks for c in verdict.causes] == [case.truth.ranks]


def test_a_silent_rank_does_not_wait_in_what_runs_beside_its_program() -> None:
    """Rank 7 would wait for rank 5 in the reduction of gradients if that were a call like others."""
    verdict, case = verdict_on("dead", SMALL, 33)
    assert case.missing == [5, 7] and case.truth.ranks == [7]
    assert [c.ranks for c in verdict.causes] == [[7]]


def test_a_silent_rank_that_only_silent_ones_wait_for_is_not_named_alone() -> None:
    verdict, case = verdict_on("in_communication", Layout(dp=4, pp=2, tp=2), 33)
    assert case.missing == [2, 3]
    assert [c.ranks for c in verdict.causes] == [[2, 3]]
    assert "Ranks 0,4,6 are waiting" in verdict.summary
