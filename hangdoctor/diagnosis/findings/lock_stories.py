"""Locks: who holds them, and who waits for them."""

from __future__ import annotations

from msgspec import Struct

from ...model.capture import Frame
from .named import Op


class ForkedLock(Struct, frozen=True):
    """A child forked while another thread held a lock."""

    child: int
    frame: Frame


class HoldsLock(Struct, frozen=True):
    """Holds the lock on `path` that ranks `waiters` wait for, or its process `child` does; `op`: the
    operation that it has entered with the lock.
    """

    path: str
    waiters: tuple[int, ...]
    child: int = 0
    op: Op | None = None


class LockedBy(Struct, frozen=True):
    """Waits for the lock on `path`, which a process of no rank holds."""

    path: str
    pid: int
    command: str


class LeftLock(Struct, frozen=True):
    """All of `waiters` wait for the file `path` to go away, and no process of the job made it."""

    path: str
    frame: Frame
    waiters: tuple[int, ...]


class LockRing(Struct, frozen=True):
    """Each waits for a file lock that another of them holds."""

    paths: tuple[str, ...]


LockStory = ForkedLock | HoldsLock | LockedBy | LeftLock | LockRing
