"""Work that may never end, given so much time and no more.

A file system without its server, or /proc of a process whose memory is locked, holds whoever reads
it. Such work runs in a thread that is left behind when its time is over; it ends with the program,
since the kernel lets go of the dying.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class OutOfTime(Exception):
    """The work has not ended in time.

    `ran_s`: how long its thread ran or was ready to run. Near zero, it waits for something outside;
    most of the time it was given, the machine is slow.
    """

    def __init__(self, ran_s: float = 0.0) -> None:
        super().__init__()
        self.ran_s = ran_s


def within(seconds: float, work: Callable[[], T]) -> T:
    """What `work` returns.

    Raises:
        OutOfTime: it has not ended after N seconds.
        Exception: what it raised itself.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    if errors:
        raise errors[0]
    if not results:
        raise OutOfTime(_ran_s(thread.native_id))
    return results[0]


def _ran_s(thread: int | None) -> float:
    """Seconds of a thread of this process on a processor and in its queue; 0 where unknown."""
    try:
        words = Path(f"/proc/self/task/{thread}/schedstat").read_text().split()
        return (int(words[0]) + int(words[1])) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class Patience:
    """Asks what may never answer, each so many seconds, and not again while it has not answered.

    What hangs costs its asker those seconds once, and holds one thread however often it is asked.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._asked: set[Hashable] = set()

    def ask(self, what: Hashable, work: Callable[[], T]) -> T:
        """What `work` returns, which asks `what`.

        Raises:
            OutOfTime: it has not answered in time, now or when it was asked before.
            Exception: what it raised itself.
        """
        if what in self._asked:
            raise OutOfTime
        self._asked.add(what)

        def asked() -> T:
            try:
                return work()
            finally:
                self._asked.discard(what)

        return within(self.seconds, asked)


def in_time(
    items: Iterable[T], work: Callable[[T], R], workers: int, seconds: float
) -> tuple[dict[int, R], dict[int, Exception]]:
    """Do `work` for each item, N at a time, in order, and begin none after so many seconds.

    Returns ({place among the items: what `work` returned}, {place: what it raised}) of those that
    have ended in time. What comes later is dropped.
    """
    waiting = list(enumerate(items))[::-1]
    lock = threading.Lock()
    over = threading.Event()
    done: dict[int, R] = {}
    failed: dict[int, Exception] = {}

    def run() -> None:
        while not over.is_set():
            with lock:
                if not waiting:
                    return
                place, item = waiting.pop()
            try:
                done[place] = work(item)
            except Exception as error:
                failed[place] = error

    threads = [threading.Thread(target=run, daemon=True) for _ in range(min(workers, len(waiting)))]
    end = time.monotonic() + seconds
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
    finally:
        over.set()
    return dict(done), dict(failed)
