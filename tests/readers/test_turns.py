"""Readers of stacks take turns, and leave the processors to the ranks as long as that gets them
anywhere.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from hangdoctor.readers import pyspy
from hangdoctor.readers.turns import Turns

pytestmark = pytest.mark.timeout(60)
_LOWEST = 19


def test_no_more_than_the_limit_at_once() -> None:
    turns, at_once, most, lock = Turns(2, patience_s=30.0), 0, 0, threading.Lock()

    def work() -> None:
        nonlocal at_once, most
        with turns.one(30.0):
            with lock:
                at_once += 1
                most = max(most, at_once)
            time.sleep(0.01)
            with lock:
                at_once -= 1

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 2 and at_once == 0


def test_one_that_hangs_does_not_hold_the_next_one_up() -> None:
    turns, over, inside = Turns(1, patience_s=0.05), threading.Event(), threading.Event()

    def hang() -> None:
        with turns.one(30.0):
            inside.set()
            over.wait(30)

    thread = threading.Thread(target=hang)
    thread.start()
    inside.wait(30)
    try:
        with turns.one(30.0):
            assert thread.is_alive() and not over.is_set()
    finally:
        over.set()
        thread.join()


def test_nobody_waits_longer_than_there_is_time() -> None:
    turns = Turns(1, patience_s=1000.0)
    with turns.one(0.0):
        done = threading.Event()

        def next_one() -> None:
            with turns.one(0.05):
                done.set()

        thread = threading.Thread(target=next_one)
        thread.start()
        assert done.wait(30)
        thread.join()


READER = """#!{python}
import os, time
first = not os.path.exists({log!r})
until = time.monotonic() + 10
# It is lowered after the start; on a full machine the first may be ended before it has logged a line.
while {gentle} and first and os.nice(0) == 0 and time.monotonic() < until:
    time.sleep(0.01)
weight = os.nice(0)
with open({log!r}, "a") as log:
    log.write(f"{{weight}}\\n")
if weight == 19 and {slow}:
    time.sleep(600)
print("[]")
"""


def reader(folder: Path, slow: bool, gentle: bool) -> Path:
    """A py-spy that notes its own weight; `slow` ends only with the usual one, and the first of `gentle`
    waits for its own.
    """
    program = folder / "py-spy"
    log = str(folder / "weights")
    text = READER.format(python=sys.executable, log=log, slow=slow, gentle=gentle)
    program.write_text(text)
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("gentle_s", "slow", "weights"),
    [(20.0, False, [_LOWEST]), (3.0, True, [_LOWEST, 0]), (0.0, False, [0])],
)
def test_a_reader_stands_back_and_is_hurried_when_that_takes_too_long(
    gentle_s: float,
    slow: bool,
    weights: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = reader(tmp_path, slow, gentle_s > 0)
    monkeypatch.setattr(pyspy, "find_pyspy", lambda: str(program))
    found = pyspy.dump(1, 40.0, gentle_s=gentle_s)
    assert (found.error, found.hurried) == ("", slow)
    seen = [int(w) for w in (tmp_path / "weights").read_text().split()]
    # On a full machine the one that stands back may not even come to say so.
    assert seen[-1] == (_LOWEST if weights == [_LOWEST] else os.nice(0))
    assert set(seen) <= {_LOWEST, os.nice(0)}
    for left in pyspy._dying:
        left.wait(timeout=20)
