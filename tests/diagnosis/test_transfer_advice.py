"""What to look for where a rank left out a send: why it passed the line, not the order of calls."""

from __future__ import annotations

import pytest
from msgspec import structs

from benchmarks.accuracy.simulate import simulate
from benchmarks.accuracy.simulated import capture_of
from hangdoctor.diagnosis import diagnose, wording
from hangdoctor.diagnosis import findings as f
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


def test_a_collective_that_was_left_out_is_no_question_of_sends_and_receives() -> None:
    """Rank 3 receives where it reduced in each earlier round."""
    mine = f.Op("recv", 264, peer=2, site="main (/app/pipe.py:88)")
    theirs = f.Op("all_reduce", 65, f.GroupRef("", "", (0, 3)), site="main (/app/pipe.py:100)")
    story = f.Diverged("own", mine, theirs, 3)
    said = wording.advice(f.Finding("p2p_unmatched", [3], story, 0.65))
    assert said.startswith(
        "Look for a branch that leads rank 3 to pipe.py:88 instead of pipe.py:100"
    )
    other = structs.replace(theirs, name="send", peer=2)
    story = structs.replace(story, theirs=other)
    assert "each send needs one" in wording.advice(f.Finding("p2p_unmatched", [3], story, 0.65))
