"""What to look for where a rank left out a send: why it passed the line, not the order of calls."""

from __future__ import annotations

import pytest

from benchmarks.accuracy.simulate import simulate
from benchmarks.accuracy.simulated import capture_of
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.layout import Layout


@pytest.mark.parametrize(
    ("fault", "advice"),
    [
        ("missing_send", "without the call (a branch, a swallowed exception)"),
        ("wrong_peer", "See how rank 11 chooses the other rank at schedule.py:61"),
    ],
)
def test_the_advice_fits_what_the_rank_did(fault: str, advice: str) -> None:
    case = simulate(fault, Layout(dp=2, pp=4, tp=2), 1)
    [cause] = diagnose(capture_of(case.after, case.before, world=16)).causes
    assert cause.ranks == case.truth.ranks and advice in cause.advice, cause
