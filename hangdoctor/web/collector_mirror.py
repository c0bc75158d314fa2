"""What the page's process knows of the collector: the last word of each rank, as the collector's
process sends it.

A `Snapshot` carries what changed since the one before, or everything to a page that has just begun.
"""

from __future__ import annotations

import time

import msgspec
from msgspec import Struct

from ..collector.view import MAX_ROWS, CaptureTimes, Now
from ..watch.arrival_lag import mark_behind, mark_lag
from ..watch.job_history import Kept
from ..watch.live_ranks import LastWord, RankRow, row_of


class Snapshot(Struct, array_like=True):
    """The collector at one moment, and the ranks that were reported since the last one."""

    now: Now
    captures: CaptureTimes
    concluded: int
    whole: bool
    ranks: dict[int, LastWord]
    history: Kept | None = None  # every few seconds


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Snapshot] = msgspec.msgpack.Decoder(Snapshot)


def encode(snapshot: Snapshot) -> bytes:
    """A snapshot as `Mirror.take` reads it (msgpack)."""
    return _encoder.encode(snapshot)


class Mirror:
    """Takes snapshots in the page's loop and makes rows of them."""

    def __init__(self) -> None:
        self.now = Now()
        self.captures = CaptureTimes()
        self.concluded = 0  # changes with every capture that was dealt with
        self.history = Kept()
        self._seen: dict[int, LastWord] = {}

    def take(self, packed: bytes | memoryview) -> None:
        """Put one snapshot in.

        Raises:
            msgspec.DecodeError: it is none.
        """
        told = _decoder.decode(packed)
        self.now, self.captures, self.concluded = told.now, told.captures, told.concluded
        self.history = told.history or self.history
        if told.whole:
            self._seen = told.ranks
        else:
            self._seen.update(told.ranks)

    def rows(self) -> tuple[list[RankRow], Now]:
        """Every rank from 0 on, those that no one has reported too, and the collector of the last
        second.
        """
        now = self.now
        # Between two snapshots time goes on: a rank that reported since must not appear to be of
        # the future.
        mono = max(now.mono, time.monotonic()) if now.mono else 0.0
        silent = {n.name for n in now.nodes if n.silent_s}
        size = min(MAX_ROWS, max(now.world_size, max(self._seen, default=-1) + 1))
        rows = [_row(rank, self._seen.get(rank), mono, silent) for rank in range(size)]
        mark_behind(rows)
        mark_lag(rows, {rank: one.waits for rank, one in self._seen.items()})
        return rows, now


def _row(rank: int, seen: LastWord | None, mono: float, silent: set[str]) -> RankRow:
    if seen is None:
        return RankRow(rank)
    return row_of(seen.told, seen.node, max(0.0, mono - seen.event), seen.node in silent)
