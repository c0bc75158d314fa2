"""What the training says of itself, such as a spike of its loss: taken once, however often it is
reported.

An agent that starts anew reports again what the boxes still hold, and a relay what was not
acknowledged. Over a restart of the collector it is the storage that knows what was there.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from ..transport.messages import EventNow

_MOST_PROCESSES = 50_000


class Said(Struct, frozen=True):
    """One event, with where it came from; its age is that at the collector."""

    event: EventNow
    node: str
    job: str


class TrainingEvents:
    """Which of them were taken, and those that are not kept yet."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], int] = {}  # rank and making of its box -> serial number
        self._fresh: list[Said] = []

    def take(self, events: Sequence[EventNow], node: str, job: str, *, late_s: float) -> None:
        """What one report holds, which lay `late_s` on its way."""
        for event in events:
            process = event.rank, event.made
            if event.serial <= self._last.get(process, 0):
                continue
            self._last.pop(process, None)  # it becomes the newest
            self._last[process] = event.serial
            if len(self._last) > _MOST_PROCESSES:
                del self._last[next(iter(self._last))]
            aged = structs.replace(event, age_s=event.age_s + late_s)
            self._fresh.append(Said(aged, node, job))

    def fresh(self) -> list[Said]:
        """What came since the last call: whoever asks keeps them together with the positions of
        the reports that they came in.
        """
        fresh, self._fresh = self._fresh, []
        return fresh
