"""One sample of all jobs, at most one in five seconds however many ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from ..storage.incident_search import IncidentSearch, Query
from ..storage.incident_words import Entry
from .culprits import CulpritNode, culprit_nodes
from .jobs import JobRow, read_jobs

_FRESH_S = 5.0
_SEARCHES = 2  # at once


class Sample(Struct, frozen=True):
    """All jobs at one time of day; `trouble` is why incidents are missing, "" where none is."""

    at: float
    jobs: list[JobRow]
    entries: list[Entry]
    nodes: list[CulpritNode]
    trouble: str


def sample(roots: Sequence[Path]) -> Sample:
    """Read the folders now."""
    now = time.time()
    entries, trouble = search(roots, Query())
    jobs = read_jobs(roots, entries, now)
    return Sample(now, jobs, entries, nodes=culprit_nodes(entries), trouble=trouble)


def search(roots: Sequence[Path], query: Query) -> tuple[list[Entry], str]:
    """The incidents that fit, newest first, and what could not be read."""
    index = IncidentSearch(roots)
    found = index.find(query)
    if index.unread:
        return found, f"{len(index.unread)} incidents cannot be read: {index.unread[0]}"
    return found, index.trouble


class Board:
    """Used by the server's loop alone; folders are read in threads."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = roots
        self._sample: Sample | None = None
        self._sampled_at = 0.0
        self._one = asyncio.Lock()
        self._few = asyncio.Semaphore(_SEARCHES)

    async def sample(self) -> Sample:
        """The newest sample, made now where the last one is older than five seconds."""
        async with self._one:
            old = self._sample
            if old is None or time.monotonic() - self._sampled_at > _FRESH_S:
                self._sample = old = await asyncio.to_thread(sample, self.roots)
                self._sampled_at = time.monotonic()
            return old

    async def search(self, query: Query) -> tuple[list[Entry], str]:
        """As `search` of this module."""
        async with self._few:
            return await asyncio.to_thread(search, self.roots, query)
