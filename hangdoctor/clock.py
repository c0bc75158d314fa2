"""The clock at the edge of the system: real ones here, a fake one for tests."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What this project asks of a clock."""

    def wall(self) -> float:
        """Seconds since the epoch; may step."""
        ...

    def monotonic(self) -> float:
        """Seconds since some start; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after this many seconds."""


class SystemClock:
    """The clocks of this machine."""

    def wall(self) -> float:
        """See `Clock`."""
        return time.time()

    def monotonic(self) -> float:
        """See `Clock`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See `Clock`."""
        time.sleep(seconds)


class FakeClock:
    """Does not move until someone sleeps on it or sets it."""

    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        self._wall = wall
        self._monotonic = 0.0

    def wall(self) -> float:
        """See `Clock`."""
        return self._wall

    def monotonic(self) -> float:
        """See `Clock`."""
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        """Return at once; both clocks have moved by `seconds`."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move both clocks on by `seconds`."""
        self._monotonic += seconds
        self._wall += seconds

    def step_wall(self, seconds: float) -> None:
        """The wall clock jumps (NTP, a person); the monotonic one does not."""
        self._wall += seconds
