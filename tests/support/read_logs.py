"""Shared by these tests: a text, or a folder of them, read and diagnosed."""

from __future__ import annotations

from pathlib import Path

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.log_facts import JobLogs

DATA = Path(__file__).parents[1] / "data" / "logs"


def diagnosed(folder: Path, text: str | dict[str, str]) -> Diagnosis:
    """The diagnosis of one log, or of several by their names."""
    texts = {"job.log": text} if isinstance(text, str) else text
    for name, content in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return diagnose(load([folder]))


def logs_of(path: Path) -> JobLogs:
    """The facts of a file."""
    capture = load([path])
    assert capture.logs is not None
    return capture.logs


def ranks_of(diagnosis: Diagnosis) -> list[int]:
    """The ranks of all causes."""
    return [rank for cause in diagnosis.causes for rank in cause.ranks]


def named(diagnosis: Diagnosis) -> list[tuple[str, list[int]]]:
    """Kinds and ranks of the causes."""
    return [(c.kind, c.ranks) for c in diagnosis.causes]
