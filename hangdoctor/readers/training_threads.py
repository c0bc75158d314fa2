"""Which threads of a rank are its training, and which only poll beside it.

The training is the main thread once it has made an operation of a group, and each thread that the
job's own marks come from; threads that Python did not start (autograd's) belong to it. Where
neither is known, all threads count.
"""

from __future__ import annotations

from collections.abc import Iterable

from .box_records import Record


class Flow:
    """What is known of the threads of one box, by their slots; learned as records come."""

    def __init__(self) -> None:
        self._main = -1
        self._nameless: frozenset[int] = frozenset()
        self._trains: set[int] = set()

    def see(self, pid: int, threads: list[tuple[int, bytes]]) -> None:
        """The thread table of now: thread id and name of each slot."""
        self._main = next((i for i, (tid, _) in enumerate(threads) if tid == pid), -1)
        self._nameless = frozenset(i for i, (_, name) in enumerate(threads) if not name)

    def learn(self, records: Iterable[Record], is_set_up: frozenset[int] = frozenset()) -> None:
        """Look for who trains; `is_set_up`: signatures of operations that do not tell it."""
        for record in records:
            if record.thread in self._trains:
                continue
            works = record.in_group and record.signature not in is_set_up
            if record.is_mark or (record.thread == self._main and works):
                self._trains.add(record.thread)

    def has(self, thread: int) -> bool:
        """Whether the thread in this slot belongs to the training."""
        return not self._trains or thread in self._trains or thread in self._nameless
