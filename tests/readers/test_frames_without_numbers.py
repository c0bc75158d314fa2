"""Native stacks whose frames have lost their numbers, and texts that only look like them."""

from __future__ import annotations

from pathlib import Path

from hangdoctor.readers.frames_without_numbers import numbered
from hangdoctor.readers.native_text import parse
from hangdoctor.readers.offline import read

STACK = """\
__poll (...)
opal_progress () from /o/libopen-pal.so.40
PMPI_Barrier () from /o/libmpi.so.40
exchange (n=4) at basin.c:71
main ()
"""
PROSE = "The run (4 ranks) stops.\nIt hangs (I think).\nmain () never returns.\n"


def test_each_main_ends_a_stack(tmp_path: Path) -> None:
    assert [line[:2] for line in numbered(STACK).splitlines()] == ["#0", "#1", "#2", "#3", "#4"]
    assert len(parse(numbered(STACK * 2), "")) == 2
    paths = [tmp_path / name for name in ("a.txt", "b.txt")]
    for path in paths:
        path.write_text(STACK)
    assert len(read(paths).names) == 2


def test_other_texts_are_left_alone() -> None:
    assert numbered(PROSE) == ""
    assert numbered("solve (x)\nstep (y)\nmain ()\n") == ""  # calls, in no place
    assert numbered("\n".join(["loading block (1) of 4"] * 9) + "\n" + STACK) == ""


def test_the_debugger_was_asked_for_the_rank() -> None:
    text = "#0  poll () from /l/libc.so.6\n#1  main () at basin.c:9\n(gdb) p rank\n$1 = 12\n"
    assert [process.rank for process in parse(text, "")] == [12]
