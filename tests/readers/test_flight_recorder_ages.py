"""Dumps of several moments in one folder: those of an earlier attempt say nothing of the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.readers.flight_recorder import read_folder
from hangdoctor.readers.offline import read
from tests.support.active_dumps import dump, entry, write

WORLD = range(4)
MINUTE_NS = 60_000_000_000


def at(minute: float, last: int, pending: bool, only_active: bool = False) -> dict[str, Any]:
    """A rank whose all_reduces up to `last` are over at that minute of the day."""
    entries = [entry(n, n) for n in range(max(1, last - 3), last + 1)]
    for e in entries:
        e["state"] = "completed"
        e["time_discovered_completed_ns"] = 0
    entries += [entry(last + 1, last + 1)] if pending else []
    for e in entries:
        back = (last + 1 - e["collective_seq_id"]) * 1_000_000
        e["time_created_ns"] = 1_780_000_000_000_000_000 + int(minute * MINUTE_NS) - back
        if e["state"] == "completed":
            e["time_discovered_completed_ns"] = e["time_created_ns"] + 500_000
    if only_active:
        entries = [e for e in entries if e["state"] != "completed"]
    return dump({"0": WORLD}, {"0": last}, entries)


def causes(folder: Path) -> list[tuple[str, list[int]]]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return [(c.kind, c.ranks) for c in diagnose(read(files)).causes]


def test_a_dump_of_an_attempt_before_is_left_out(tmp_path: Path) -> None:
    """Rank 3 left no dump this time; the one in the folder is of the first attempt, which came
    further.
    """
    dumps = {rank: at(90, 80, pending=rank != 1) for rank in range(3)}
    write(tmp_path, dumps | {3: at(10, 400, pending=False)})
    found = read_folder(tmp_path)
    assert found.missing == [3]
    [(name, why)] = found.skipped
    assert name.endswith("rank_3") and why.startswith("older than the other dumps: rank ")
    # Rank 1 did not enter; nothing shows where rank 3 was.
    assert 1 in {r for _, ranks in causes(tmp_path) for r in ranks}


@pytest.mark.parametrize("only_active", [False, True])
def test_a_dump_of_minutes_before_is_left_out(tmp_path: Path, only_active: bool) -> None:
    """Its peers went on with it afterwards: it is no sign that it never entered."""
    dumps = {rank: at(30, 900, True, only_active) for rank in (0, 1, 3)}
    write(tmp_path, dumps | {2: at(20, 80, True, only_active)})
    assert read_folder(tmp_path).missing == [2]
    assert causes(tmp_path) == [("unreachable", [2])]


def test_of_two_attempts_in_folders_the_newer_dump_of_each_rank_is_read(tmp_path: Path) -> None:
    write(tmp_path / "attempt_0", {rank: at(10, 400, pending=True) for rank in WORLD})
    write(tmp_path / "attempt_1", {rank: at(90, 80, pending=rank != 1) for rank in WORLD})
    assert causes(tmp_path) == [("not_entered", [1])]


def test_a_rank_that_is_late_is_no_older_dump(tmp_path: Path) -> None:
    """It computes for minutes while the others wait: nobody went on with it."""
    dumps = {rank: at(30, 80, pending=True) for rank in (0, 1, 3)}
    write(tmp_path, dumps | {2: at(20, 80, pending=False)})
    assert read_folder(tmp_path).missing == []
    assert causes(tmp_path) == [("not_entered", [2])]


def test_dumps_of_a_job_that_moves_stay_together(tmp_path: Path) -> None:
    """Asked one after the other: the second is some operations further, and not a minute later."""
    write(tmp_path, {rank: at(30 + 0.01 * rank, 80 + 9 * rank, pending=True) for rank in WORLD})
    assert read_folder(tmp_path).missing == []


def test_a_root_that_runs_ahead_in_broadcasts_is_no_newer_dump(tmp_path: Path) -> None:
    ahead = at(30, 120, pending=True)
    for e in ahead["entries"]:
        e["profiling_name"] = "nccl:broadcast"
    behind = at(20, 80, pending=True)
    write(tmp_path, {0: ahead} | {rank: behind for rank in (1, 2, 3)})
    assert read_folder(tmp_path).missing == []
