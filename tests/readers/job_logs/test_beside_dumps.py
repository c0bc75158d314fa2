"""Job logs beside Flight Recorder dumps of the same job: they agree, or contradict, and it is said."""

from __future__ import annotations

from pathlib import Path

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Diagnosis
from tests.support.active_dumps import dump, entry, write
from tests.support.written_logs import caught, counters, traceback

LAGS = "[rank0]: [{}] finished collective #80, but didn't join collective #81\n"


def verdict(folder: Path, log: str, outside: int = 2) -> Diagnosis:
    """Of dumps in which one of four ranks is outside of an all_reduce, and a log."""
    waits = dump({"0": range(4)}, {"0": 80}, [entry(80, 81)])
    (folder / "dumps").mkdir(parents=True)
    write(folder / "dumps", {r: waits for r in range(4) if r != outside})
    write(folder / "dumps", {outside: dump({"0": range(4)}, {"0": 80}, [])})
    (folder / "job.log").write_text(log)
    return diagnose(load([folder / "dumps", folder / "job.log"]))


def from_log(found: Diagnosis) -> list[str]:
    return [e.says for c in found.causes for e in c.evidence if e.source == "log"]


def test_counters_of_the_log_support_the_dumps(tmp_path: Path) -> None:
    log = "".join(caught(r) + counters(r, 81, 80) for r in (0, 1, 3)) + counters(2, 80, 80)
    found = verdict(tmp_path, log)
    assert [(c.kind, c.ranks) for c in found.causes] == [("not_entered", [2])]
    assert any(text.startswith("The log agrees") for text in from_log(found))
    assert not any("contradict" in note for note in found.notes)


def test_a_log_that_names_another_rank_contradicts_them(tmp_path: Path) -> None:
    found = verdict(tmp_path, LAGS.format(1))
    assert found.causes[0].ranks == [2]
    assert any(text.startswith("The log contradicts") for text in from_log(found))
    assert any("one names rank 1, the other rank 2" in note for note in found.notes)


def test_a_crash_in_the_log_comes_before_the_hang_in_the_dumps(tmp_path: Path) -> None:
    found = verdict(tmp_path, traceback(2, "ValueError: bad sample") + caught(0) + caught(1))
    [cause] = found.causes
    assert (cause.kind, cause.ranks) == ("error", [2]) and "ValueError" in cause.summary
    found = verdict(tmp_path / "other", traceback(3, "ValueError: bad sample") + caught(0))
    assert (found.causes[0].kind, found.causes[0].ranks) == ("error", [3])
