"""Finds the rank that makes the others wait while all make progress: it never waits, and all others
always do.

Each report says how much of its time a rank waited in operations, by its own clock: clocks of nodes
are not compared. A window is made of slices. The slowest of a slice is the rank that waited least,
where it stands out: the next one waited at least `stands_out` more, and `times` as much. A rank is
a straggler when it was the slowest of nearly all slices of the window: chance makes another rank
the last one each time, a pause or a checkpoint fills some slices only.

No I/O and no clock here.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from msgspec import Struct

from ..transport.messages import RankNow


class SlowSettings(Struct, frozen=True):
    """How long and how clearly a rank must be the slowest."""

    window_s: float = 150.0  # 0: no rank is called slow
    slices: int = 30
    share: float = 0.9  # of the slices
    stands_out: float = 15.0  # percent of the time
    times: float = 2.0
    cooldown_s: float = 1800.0

    @property
    def slice_s(self) -> float:
        """Seconds of a slice."""
        return max(1.0, self.window_s / self.slices)

    @property
    def needed(self) -> int:
        """Slices in a window: the shorter, the fewer, but never so few that chance could fill them."""
        return max(12, min(self.slices, round(self.window_s / self.slice_s)))


class Straggler(Struct, frozen=True):
    """`shares`: percent of its time that each rank waited, over the window."""

    rank: int
    shares: dict[int, int]
    window_s: float


class _Slice(Struct):
    rank: int  # the slowest, -1 if none differs
    waits: dict[int, float]


class StragglerWatch:
    """Fed with `report`; `tick` answers with a straggler, once for each cool-down."""

    def __init__(self, settings: SlowSettings | None = None) -> None:
        self.settings = settings or SlowSettings()
        # rank -> sum and count, of the slice that is being filled
        self._sums: dict[int, list[float]] = {}
        self._slices: deque[_Slice] = deque(maxlen=self.settings.needed)
        self._begun: float | None = None
        self._quiet_until = -1e18

    def report(self, ranks: Iterable[RankNow]) -> None:
        """What one node says of its ranks; only shares of waiting count, of ranks that have not
        ended.
        """
        if not self.settings.window_s:
            return
        for told in ranks:
            if told.waits >= 0 and not told.over:
                known = self._sums.setdefault(told.rank, [0.0, 0.0])
                known[0] += told.waits
                known[1] += 1

    def forget(self) -> None:
        """The job does not move, or began anew: what was seen no longer counts."""
        self._sums.clear()
        self._slices.clear()
        self._begun = None

    def tick(self, now: float, ranks: int) -> Straggler | None:
        """Call it every second; `ranks` is how many there are: of nearly all something must be
        known.
        """
        s = self.settings
        # The first, or this machine stood still.
        if self._begun is None or now - self._begun > 4 * s.slice_s:
            self._begun = now
            self._sums.clear()
            return None
        if not s.window_s or now - self._begun < s.slice_s - 0.05:
            return None
        self._begun = now
        waits = {rank: total / count for rank, (total, count) in self._sums.items()}
        self._sums.clear()
        if not waits:
            return None
        self._slices.append(_Slice(self._slowest(waits, ranks), waits))
        return self._judge(now)

    def _slowest(self, waits: dict[int, float], ranks: int) -> int:
        if len(waits) < 2 or len(waits) < 0.9 * ranks:
            return -1
        slowest = min(waits, key=lambda r: waits[r])
        least = waits[slowest]
        second = min(w for r, w in waits.items() if r != slowest)
        s = self.settings
        stands_out = second - least >= s.stands_out and second >= s.times * least
        return slowest if stands_out else -1

    def _judge(self, now: float) -> Straggler | None:
        if len(self._slices) < self.settings.needed or now < self._quiet_until:
            return None
        rank, count = Counter(s.rank for s in self._slices).most_common(1)[0]
        if rank < 0 or count < self.settings.share * len(self._slices):
            return None
        self._quiet_until = now + self.settings.cooldown_s
        shares: dict[int, list[float]] = {}
        for one in self._slices:
            for r, w in one.waits.items():
                shares.setdefault(r, []).append(w)
        means = {r: round(sum(w) / len(w)) for r, w in sorted(shares.items())}
        return Straggler(rank, means, window_s=len(self._slices) * self.settings.slice_s)
