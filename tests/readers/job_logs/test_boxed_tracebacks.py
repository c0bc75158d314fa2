"""Tracebacks as rich draws them, whole, with a rank before each row, with broken paths, and cut; and tables that
look like them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.readers.job_logs.rich_boxes import RichBoxes
from tests.support.confined import confined
from tests.support.read_logs import diagnosed

TOP = "╭──────────────────── Traceback (most recent call last) ─────────────────────╮"
END = "╰────────────────────────────────────────────────────────────────────────────╯"


def row(text: str = "") -> str:
    return f"│ {text:<74} │"


ROWS = [
    TOP,
    row("/job/fit.py:12 in begin"),
    row(),
    row("   11 │   if lost: raise ValueError('the node is lost, fatal error')"),
    row("❱  12 │   go(model)"),
    row("   13 │   # killed: Segmentation fault"),
    row(),
    row("/opt/lib/python3.11/site-packages/rows/a_folder_with_a_long_name/an"),
    row("other_file.py:71 in take"),
    row(),
    row("❱ 71 │   │   raise RuntimeError("),
    row("  72 │   │   │   'no row'"),
    END,
]


def drawn(prefix: str = "", rows: list[str] = ROWS, last: str = "") -> str:
    return "".join(f"{prefix}{line}\n" for line in [*rows, *([last] if last else [])])


@pytest.mark.parametrize("prefix", ["", "[rank5]: ", "    [rank5]: "])
def test_the_frames_of_a_box_are_those_of_its_error(tmp_path: Path, prefix: str) -> None:
    [cause] = diagnosed(tmp_path, drawn(prefix, last="KeyError: 'row 7'")).causes
    assert cause.ranks == ([5] if prefix else [])
    assert "KeyError in begin (fit.py:12): 'row 7'" in cause.summary


def test_a_box_without_its_end_shows_where_and_what_the_source_says(tmp_path: Path) -> None:
    [cause] = diagnosed(tmp_path, drawn("[rank5]: ", rows=ROWS[6:-2])).causes
    assert cause.ranks == [5] and "take (another_file.py:71)" in cause.summary
    assert "'raise RuntimeError('" in cause.summary


def test_source_in_a_box_is_no_word_of_the_program(tmp_path: Path) -> None:
    rows = [*ROWS[:6], row("   14 │   print('fatal error: aborted')"), END]
    [cause] = diagnosed(tmp_path, drawn(rows=rows, last="ValueError: bad")).causes
    assert "ValueError in begin (fit.py:12): bad" in cause.summary


TABLE = (
    "┌───┬────────┬──────────┐\n│   │ Name   │ Params   │\n├───┼────────┼──────────┤\n"
    "│ 0 │ model  │ 7.0 B    │\n│ 1 │ failed │ 12 lost  │\n└───┴────────┴──────────┘\n"
)


def test_a_table_is_no_box(tmp_path: Path) -> None:
    text = (
        TABLE
        + '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/job/fit.py", line 3, in go\n'
    )
    [cause] = diagnosed(tmp_path, text + "[rank1]: ValueError: bad\n").causes
    assert cause.ranks == [1] and "ValueError in go (fit.py:3): bad" in cause.summary
    (tmp_path / "b").mkdir()
    assert diagnosed(tmp_path / "b", TABLE).causes == []


def test_two_boxes_in_a_row_are_two_tracebacks(tmp_path: Path) -> None:
    first = drawn("[rank1]: ", last="ValueError: bad")
    second = drawn("[rank2]: ", rows=ROWS[:6] + ROWS[-1:], last="ValueError: bad")
    [cause] = diagnosed(tmp_path, first + second).causes
    assert cause.ranks == [1, 2] and "failed alike" in cause.summary


def test_a_long_row_of_blanks_takes_no_time() -> None:
    blank = f"│ {' ' * 19_000}x"
    assert (
        confined(lambda: len([RichBoxes().feed(blank) for _ in range(20)]), seconds=3) == "read: 20"
    )
