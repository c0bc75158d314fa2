"""One timed all_reduce among some units, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

BUSY_SHARE = 0.75  # the reference is the speed that a quarter of the groups reach


class Trial(Struct, frozen=True):
    """Units (nodes, or the devices of one host) that are to do an all_reduce together."""

    units: tuple[str, ...]
    stage: str  # "pairs", "halves", "all", "again", "with another", "part"


class Result(Struct):
    """What came of a trial: complete, or why not.

    `speeds`: bytes of the buffer -> bus bandwidth in GB/s, for the sizes that were finished.
    """

    units: list[str]
    stage: str
    complete: bool
    speeds: dict[int, float] = {}
    error: str = ""
    seconds: float = 0.0
    status: str = "ok"  # "ok", "slow", "failed": what `Judge` made of it

    @property
    def bad(self) -> bool:
        """Whether it failed or was slow."""
        return self.status != "ok"


class Judge:
    """Tells slow groups from good ones by the speeds of pairs."""

    def __init__(self, slow_below: float) -> None:
        """`slow_below`: share of the reference below which a pair is slow, 0 to 1."""
        self.slow_below = slow_below
        self.reference: dict[int, float] = {}  # bytes -> GB/s

    def learn(self, results: Iterable[Result]) -> None:
        """Take the speed of good pairs from these."""
        complete = [r.speeds for r in results if r.complete]
        sizes = {size for speeds in complete for size in speeds}
        self.reference = {size: _upper([s[size] for s in complete if size in s]) for size in sizes}

    def mark(self, results: Sequence[Result]) -> None:
        """Set the status of each."""
        for result in results:
            result.status = self._status(result)

    def _status(self, result: Result) -> str:
        if not result.complete:
            return "slow" if result.speeds else "failed"
        share = self.share(result.speeds)
        # More nodes share more of the network: their speed is only compared coarsely.
        limit = self.slow_below if len(result.units) == 2 else self.slow_below / 2
        return "slow" if share < limit else "ok"

    def share(self, speeds: Mapping[int, float]) -> float:
        """Speed as a share of the reference, at the largest size; 1 where there is nothing to
        compare.
        """
        common = [size for size in speeds if self.reference.get(size)]
        if not common:
            return 1.0
        return speeds[max(common)] / self.reference[max(common)]


def bus_bandwidth(size: int, seconds: float, ranks: int) -> float:
    """GB/s that each link carries in an all_reduce of `size` bytes: size / seconds x 2(n-1)/n, as
    nccl-tests define it (https://github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md).
    """
    if seconds <= 0 or ranks < 2:
        return 0.0
    return size / seconds * 2 * (ranks - 1) / ranks / 1e9


def _upper(speeds: Sequence[float]) -> float:
    ordered = sorted(speeds)
    return ordered[min(len(ordered) - 1, int(BUSY_SHARE * len(ordered)))] if ordered else 0.0
