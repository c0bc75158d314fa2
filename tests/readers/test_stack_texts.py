"""Stacks that other tools than py-spy printed of a real process: `tests/data/stack_texts`."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.readers.offline import read
from hangdoctor.readers.stack_texts import parse, read_file

DATA = Path(__file__).parents[1] / "data" / "stack_texts"


@pytest.mark.parametrize("name", ["pystack-1.7.txt", "faulthandler-3.11.txt"])
def test_the_main_thread_with_its_innermost_frame_first(name: str) -> None:
    [process] = read_file(DATA / name).processes
    main = next(t for t in process.threads if t.name == "MainThread")
    assert (main.frames[0].name, main.frames[0].file) == ("load_batch", "/job/train.py")
    assert (main.frames[0].line, main.frames[-1].name) == (2, "<module>")
    assert len(process.threads) == 2


def test_native_stacks_of_gdb() -> None:
    [process] = read_file(DATA / "gdb.txt").processes
    main = next(t for t in process.threads if t.name == "MainThread")
    assert main.tid == process.pid and "nanosleep" in main.frames[0].name
    assert main.frames[0].line > 0 and len(process.threads) == 2


@pytest.mark.parametrize("name", ["pystack-1.7.txt", "faulthandler-3.11.txt", "gdb.txt"])
def test_it_is_known_by_its_contents(name: str) -> None:
    [rank] = read([DATA / name]).ranks()
    assert rank.samples[0].threads


def test_a_text_of_none_of_them() -> None:
    assert parse("Thread 7 (idle)\n#0 nothing\nFile x, line 3 in f\n", "n1") is None
