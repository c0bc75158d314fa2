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
    assert parse("Thread 7 (idle)\n#0 nothing\nFile x, line 3 in f\n", "n1") == []


def test_two_processes_of_pystack_in_one_file(tmp_path: Path) -> None:
    one = (DATA / "pystack-1.7.txt").read_text()
    text = one + one.replace("8403", "8503").replace("8395", "8495")
    found = parse(text, "n1")
    assert [(p.pid, len(p.threads)) for p in found] == [(8395, 2), (8495, 2)]
    assert all(p.threads[-1].name == "MainThread" for p in found)


def test_two_processes_of_gdb_in_one_file() -> None:
    one = (DATA / "gdb.txt").read_text()
    text = one + one.replace("LWP 8403", "LWP 8503").replace("LWP 8395", "LWP 8495")
    assert [(p.pid, len(p.threads)) for p in parse(text, "n1")] == [(8395, 2), (8495, 2)]


def test_a_process_dumped_twice_is_one() -> None:
    one = (DATA / "pystack-1.7.txt").read_text()
    assert [p.pid for p in parse(one + one, "n1")] == [8395]


PY_BT = """[New LWP {other}]
[Thread debugging using libthread_db enabled]
Traceback (most recent call first):
  <built-in method sleep of module object at remote 0x7f3fc58e77e0>
  File "/job/train.py", line {line}, in {name}
    time.sleep(60)
  File "/job/train.py", line 9, in <module>
    main()
[Inferior 1 (process {pid}) detached]
"""


def test_py_bt_of_gdb_is_a_stack_and_no_traceback(tmp_path: Path) -> None:
    texts = [PY_BT.format(other=903 + n, pid=900 + n, line=7, name="load") for n in (0, 10)]
    for n, text in enumerate(texts):
        (tmp_path / f"gdb-{n}.txt").write_text(text)
    capture = read([tmp_path / "gdb-0.txt", tmp_path / "gdb-1.txt"])
    assert capture.logs is None
    assert [rank.pid for rank in capture.ranks()] == [900, 910]
    [main] = capture.ranks()[0].samples[0].threads
    assert [(f.name, f.line) for f in main.frames] == [("load", 7), ("<module>", 9)]
    assert [p.pid for p in parse("".join(texts), "n1")] == [900, 910]
