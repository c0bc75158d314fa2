"""One trial under way, without I/O: which orders go out, and what the words of its ranks add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...text.ranges import format_hosts
from .trial import Result, Trial, bus_bandwidth
from .words import Order, Word

_STAGES = ("nothing", "started", "store", "joined")
_STUCK_AFTER = {
    "nothing": "did not start a process",
    "started": "did not reach the store on {first}",
    "store": "did not finish init_process_group",
    "joined": "did not finish the all_reduce",
}
_OTHERS_S = 1.0  # for the other ranks to say what they saw, once one has failed


class RunningTrial:
    """Feed it words; `orders` are to be sent, `over` says when it has ended."""

    def __init__(
        self,
        number: int,
        trial: Trial,
        counts: Mapping[str, int],
        sizes: Sequence[int],
        *,
        seconds: float,
        address: str,
    ) -> None:
        """`counts`: ranks of each unit; `address`: where the first unit can be reached."""
        self.number = number
        self.trial = trial
        self.first = dict(zip(trial.units, _first_ranks(trial, counts), strict=True))
        self.world = sum(counts[unit] for unit in trial.units)
        self.sizes = list(sizes)
        self.seconds = seconds
        self.address = address
        self.begin = 0.0
        self.end = float("inf")
        self.listens = False  # rank 0 has made the store, and the others were asked to join
        self.stages: dict[int, str] = {}
        self.times: dict[int, dict[int, float]] = {}  # bytes -> rank -> seconds
        self.done: set[int] = set()
        self.errors: dict[int, str] = {}
        self.fabric_lines: dict[str, str] = {}

    def start(self, now: float) -> dict[str, Order]:
        """{unit: order} to begin with."""
        self.begin = now
        self.end = now + self.seconds
        return {self.trial.units[0]: self._order("host", self.trial.units[0])}

    def hear(self, unit: str, word: Word, now: float) -> dict[str, Order]:
        """Take a word of one of its ranks; {unit: order} that follows from it."""
        if word.stage in _STAGES:
            self.stages[word.rank] = word.stage
        elif word.stage == "size":
            self.times.setdefault(word.size, {})[word.rank] = word.seconds
        elif word.stage == "fabric" and word.text:
            self.fabric_lines[unit] = word.text
        elif word.stage == "done":
            self.done.add(word.rank)
        elif word.stage in ("failed", "late"):
            self.errors[word.rank] = word.text
            self.end = min(self.end, now + _OTHERS_S)
        elif word.stage == "listens":
            self.listens = True
            return {u: self._order("join", u, word.port) for u in self.trial.units}
        return {}

    def lose(self, unit: str, why: str, now: float) -> None:
        """The unit's own process has ended."""
        self.errors[self.first[unit]] = why
        self.end = min(self.end, now + _OTHERS_S)

    def over(self, now: float) -> bool:
        """Whether all ranks are done, or its time is up."""
        return len(self.done) == self.world or now >= self.end

    def stop(self) -> dict[str, Order]:
        """{unit: order} that ends its ranks."""
        return {unit: Order("stop", self.number) for unit in self.trial.units}

    def result(self, now: float) -> Result:
        """What came of it."""
        complete = len(self.done) == self.world
        speeds = {}
        for size, times in sorted(self.times.items()):
            if len(times) == self.world:
                speeds[size] = bus_bandwidth(size, max(times.values()), self.world)
        units = list(self.trial.units)
        error = "" if complete else self._why()
        taken = round(now - self.begin, 2)
        return Result(units, self.trial.stage, complete, speeds, error=error, seconds=taken)

    def _order(self, what: str, unit: str, port: int = 0) -> Order:
        return Order(
            what,
            self.number,
            self.first[unit],
            self.world,
            address=self.address,
            port=port,
            sizes=self.sizes,
            seconds=self.seconds,
        )

    def _why(self) -> str:
        """The first words of those that say most, and how far each unit came."""
        said = [text for _, text in sorted(self.errors.items()) if text]
        units = self.trial.units if self.listens else self.trial.units[:1]
        reached = {
            unit: min(
                (_STAGES.index(self.stages.get(r, "nothing")) for r in self._ranks(unit)), default=0
            )
            for unit in units
        }
        least = min(reached.values())
        behind = [unit for unit, stage in reached.items() if stage == least]
        sentence = f"{format_hosts(behind)} {_STUCK_AFTER[_STAGES[least]].format(first=self.trial.units[0])}"
        if self.times and least == _STAGES.index("joined"):
            waiting = [size for size in self.sizes if len(self.times.get(size, {})) < self.world]
            sentence += f" of {size_text(waiting[0])}" if waiting else ""
        return f"{sentence} ({said[0]})" if said else sentence

    def _ranks(self, unit: str) -> range:
        firsts = [*sorted(self.first.values()), self.world]
        first = self.first[unit]
        return range(first, firsts[firsts.index(first) + 1])


def _first_ranks(trial: Trial, counts: Mapping[str, int]) -> list[int]:
    firsts, at = [], 0
    for unit in trial.units:
        firsts.append(at)
        at += counts[unit]
    return firsts


def size_text(size: int) -> str:
    """``64 kB``, ``16 MB``: as the flag --sizes counts them, by 1,024."""
    for power, unit in ((30, "GB"), (20, "MB"), (10, "kB")):
        if size >= 1 << power:
            return f"{size / (1 << power):.4g} {unit}"
    return f"{size} B"
