"""The box of a process that ends well while a thread of it trains stays: its driver had gone."""

from __future__ import annotations

import _thread
import json
import queue
import threading
from pathlib import Path

import pytest

from hangdoctor.probe import training_thread
from hangdoctor.probe.box import BoxWriter
from hangdoctor.probe.record_core import native
from hangdoctor.readers.blackbox import find_boxes, read_box
from tests.support.probe_ranks import environment, ranks, until
from tests.support.stage import hangdoctor

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]


def end_all(folder: Path, how: str) -> None:
    with ranks("trains_in_thread.py", 3, environment(folder), how, asked=True) as started:
        assert [rank.line() for rank in started] == ["at rest"] * 3
        for rank in started if how == "hang" else ():
            if rank is not started[1]:
                until("it is in its collective", lambda pid=rank.pid: is_inside(folder, pid))
        for rank in started:
            assert rank.process.stdin is not None
            rank.process.stdin.close()
        for rank in started:
            rank.process.wait(timeout=60)


def is_inside(folder: Path, pid: int) -> bool:
    (found,) = find_boxes(folder, pids=[pid])
    return bool(read_box(found.path).ops.unfinished())


def test_what_a_thread_was_in_is_kept(tmp_path: Path) -> None:
    end_all(tmp_path, "hang")
    assert sorted(box.rank for box in find_boxes(tmp_path)) == [0, 1, 2]
    hangdoctor("diagnose", str(tmp_path), "--json", "said.json", cwd=tmp_path)
    said = json.loads((tmp_path / "said.json").read_text())
    assert [(c["kind"], c["ranks"]) for c in said["causes"]] == [("not_entered", [1])], said[
        "summary"
    ]


def test_of_a_training_that_is_over_nothing_stays(tmp_path: Path) -> None:
    end_all(tmp_path, "whole")
    assert find_boxes(tmp_path) == [] and list(tmp_path.iterdir()) == []


@pytest.mark.skipif(native is None, reason="no extension: no thread's state is read")
@pytest.mark.parametrize(("name", "left"), [("", True), ("Thread-1 (train)", False)])
def test_a_thread_that_python_has_joined_is_none_though_the_kernel_still_has_it(
    name: str, left: bool, tmp_path: Path
) -> None:
    """One that `threading` does not know: C++'s, or by its name one that was its own."""
    numbers: queue.Queue[int] = queue.Queue()
    done = threading.Event()

    def wait() -> None:
        numbers.put(_thread.get_native_id())
        done.wait(60)

    _thread.start_new_thread(wait, ())
    try:
        box = BoxWriter(tmp_path, "job")
        box.add_thread(0, box.pid, "MainThread")
        row = box.add_thread(1, numbers.get(timeout=30), name)
        box.words[row + 1] = 5  # its last operation
        assert training_thread.is_left(box) is left
    finally:
        done.set()
