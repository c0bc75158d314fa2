"""An error in a pass of the diagnosis: noted, and never a healthy job."""

from __future__ import annotations

import pytest

from benchmarks.accuracy.simulate import simulate
from benchmarks.accuracy.simulated import capture_of
from hangdoctor.diagnosis import diagnose, verdict
from hangdoctor.diagnosis.case import Case
from hangdoctor.diagnosis.draft import Draft
from hangdoctor.model.layout import Layout


def broken(case: Case, draft: Draft) -> None:
    raise KeyError(57)


@pytest.mark.parametrize("place", range(len(verdict.PASSES) + 1))
@pytest.mark.parametrize("kind", ["healthy", "not_entered"])
def test_the_other_passes_decide_and_the_error_is_noted(
    monkeypatch: pytest.MonkeyPatch, place: int, kind: str
) -> None:
    case = simulate(kind, Layout(dp=2, pp=2, tp=2), 1)
    capture = capture_of(case.after, case.before, world=8)
    whole = diagnose(capture)
    passes = [*verdict.PASSES[:place], broken, *verdict.PASSES[place:]]
    monkeypatch.setattr(verdict, "PASSES", tuple(passes))
    found = diagnose(capture, lenient=True)
    [note] = [n for n in found.notes if "error in hangdoctor" in n]
    assert "broken (" in note and "KeyError: 57" in note and "report it with the bundle" in note
    if kind == "healthy":
        assert (whole.status, found.status, found.causes) == ("healthy", "unknown", [])
    else:
        assert found.status == "hang" and found.causes == whole.causes
    with pytest.raises(KeyError):
        diagnose(capture)
