"""Whose a failure without a name is, by the lines right beside its own; frames of a terminal around a whole log."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.readers.job_logs.framed_lines import are_framed, unframed
from hangdoctor.readers.job_logs.whose_line import whose
from tests.support.read_logs import diagnosed, named

ENDPOINT = "CUDA error: device-side assert triggered\n"


@pytest.mark.parametrize(
    ("line", "who"),
    [
        ("[rank9]:[E ProcessGroupNCCL.cpp:583] [Rank 9] the operation failed", "rank 9"),
        ("[lake17:04854] Signal: Aborted (6)", "process 4854 on lake17"),
        ("rank 4: ERROR the tile has no depth", "rank 4"),
        ("Process Tile #3:", "process Tile #3"),
        ("rank 4: step 12 done, loss 3.1", ""),
        ("mpirun: process rank 3 died badly", ""),
        ("FATAL: the lake has no outlet", ""),
    ],
)
def test_whose_failure_a_line_tells(line: str, who: str) -> None:
    assert whose(line) == who


def test_the_one_process_beside(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, f"{ENDPOINT}Process Tile #3:\nTraceback (most recent call last):\n")
    assert named(found) == [("error", [])], found.summary
    assert "A rank (process Tile #3, by the lines beside it) failed first" in found.summary


def test_of_two_beside_none_is_told(tmp_path: Path) -> None:
    two = "[lake1:411] Signal: Aborted (6)\n[lake2:412] Signal: Aborted (6)\n"
    found = diagnosed(tmp_path, f"FATAL: spectral mode 9 cannot be inverted\n{two}")
    assert "by the lines beside it" not in found.summary, found.summary


def test_a_rank_that_goes_on_beside_has_no_part_in_it(tmp_path: Path) -> None:
    step = "[rank0]: step {} of 90, loss 2.1\n"
    text = f"{step.format(1)}{step.format(2)}FATAL: spectral mode 9 cannot be inverted\n"
    found = diagnosed(tmp_path, text)
    assert "rank 0, by the lines" not in found.summary, found.summary


# ------------------------------------------------------------------ frames

LINES = (
    "[2031-02-28 09:28:25 TP5] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/job/fit.py", line 25, in main',
    "    tile(3)",
    '  File "/job/fit.py", line 9, in tile',
    "    raise ValueError(depth)",
    "ValueError: depth must be positive",
)


def _framed() -> str:
    return "".join(f"│ {line:<100} │\n" for line in LINES)


def test_a_traceback_within_a_frame(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, _framed())
    assert named(found) == [("error", [5])], found.summary
    assert "ValueError in tile (fit.py:9): depth must be positive" in found.summary


def test_a_frame_that_the_paste_has_cut_at_its_ends(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, _framed().removeprefix("│ ").rstrip(" │\n"))
    assert "ValueError in tile (fit.py:9): depth must be positive" in found.summary


def test_tables_and_boxes_with_corners_are_no_frame() -> None:
    assert not are_framed(
        ["│ rank │ step │", "│ 0    │ 12   │", "│ 1    │ 12   │", "│ 2    │ 12   │"]
    )
    assert not are_framed(
        ["╭──── Traceback ────╮", *["│ /job/fit.py:12 in begin │"] * 5, "╰──────╯"]
    )
    assert not are_framed(["plain", "lines", "of a", "log", "│ one"])


def test_what_a_frame_holds() -> None:
    assert unframed("│     tile(3)            │") == "    tile(3)"
