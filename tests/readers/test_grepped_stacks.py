"""Frames that were searched out of the debugger's files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.readers import grepped_stacks, merged_stacks
from hangdoctor.readers.offline import read


def test_one_frame_of_each_file_shows_where_they_are_and_no_more(tmp_path: Path) -> None:
    lines = [
        f"bt_{pid}.out:#1{pid % 2} 0x00007f05 in relax_rows ()\n" for pid in (8121, 8122, 8124)
    ]
    (tmp_path / "found.txt").write_text("".join(lines) + "bt_8125.out:#12 0x0000 in\n")
    found = diagnose(read([tmp_path / "found.txt"]))
    assert (found.status, found.causes, found.ranks) == ("unknown", [], [])
    assert "process 8121, process 8122 and process 8124 are inside of relax_rows" in found.summary


def test_whole_stacks_with_the_numbers_of_lines(tmp_path: Path) -> None:
    def of_rank(rank: int, inner: str) -> str:
        frames = [f"#0  0x1f in {inner}", "#1  0x1f in main (argc=1) at /u/app.c:30"]
        return "".join(f"rank{rank}.txt:{n + 4}:{frame}\n" for n, frame in enumerate(frames))

    waits = "PMPI_Barrier () from /m/libmpi.so.12"
    text = of_rank(0, waits) + of_rank(1, "relax (n=4) at /u/grid.c:7") + of_rank(2, waits)
    (tmp_path / "found.txt").write_text(text)
    found = diagnose(read([tmp_path / "found.txt"]))
    assert [cause.ranks for cause in found.causes] == [[1]]


@pytest.mark.parametrize("text", ["", "notes.md:# 1 title\n", "a.out:#0  0x1f in poll ()\n"])
def test_other_texts_have_none(text: str) -> None:
    assert grepped_stacks.read(text) == []


@pytest.mark.parametrize("unit", [" ", "a", "a:", "a{0", "#1 ", "m{0..1}: #", "a-1-"])
def test_a_text_of_one_long_line_is_read_at_once(unit: str) -> None:
    text = unit * (200_000 // len(unit))
    begin = time.perf_counter()
    for one in (text, f"x{{0}}: #0 {text}", f"a.out:#0 {text}"):
        grepped_stacks.read(one)
        merged_stacks.read(one)
    assert time.perf_counter() - begin < 2
