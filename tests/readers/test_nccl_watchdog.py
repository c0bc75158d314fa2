"""What a real job left that NCCL's watchdog ended (tests/data/nccl): each kind of evidence alone, and all."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose

DATA = Path(__file__).parents[1] / "data" / "nccl" / "watchdog.tar.gz"


@pytest.mark.parametrize(
    "evidence",
    [("log.0", "log.1", "log.2"), ("dumps",), ("boxes",), ("log.0", "log.1", "log.2", "boxes")],
    ids=["logs", "dumps", "boxes", "logs and boxes"],
)
def test_the_rank_that_never_came_is_named_and_no_aborted_one(
    evidence: tuple[str, ...], tmp_path: Path
) -> None:
    with tarfile.open(DATA) as kept:
        kept.extractall(tmp_path)  # ours
    files: list[Path] = []
    for name in evidence:
        path = tmp_path / name
        files += sorted(path.iterdir()) if path.is_dir() else [path]
    found = diagnose(load(files))
    assert [(cause.kind, cause.ranks) for cause in found.causes] == [("not_entered", [1])]
    assert "all_reduce #2" in found.summary
