"""Work that may never end, given so much time and no more.

A file system without its server, or /proc of a process whose memory is locked, holds whoever reads
it. Such work runs in a thread that is left behind when its time is over; it ends with the program,
since the kernel lets go of the dying.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


class OutOfTime(Exception):
    """The work has not ended in time."""


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
        raise OutOfTime
    return results[0]


def each(items: Iterable[T], work: Callable[[T], object], workers: int, seconds: float) -> bool:
    """Do `work` for each item, N at a time; True where all have ended in time. What it raises ends
    that item only.
    """
    waiting = list(items)[::-1]
    lock = threading.Lock()

    def run() -> None:
        while True:
            with lock:
                if not waiting:
                    return
                item = waiting.pop()
            work(item)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(min(workers, len(waiting)))]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)
