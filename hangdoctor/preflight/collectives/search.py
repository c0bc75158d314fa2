"""The search for the bad node or link, without I/O: trials out, results in.

`search` is a generator. It yields batches of trials that have no unit in common, is sent their
results, and returns what it found:

    pairs in rounds -> what failed once more, and with other partners -> halves -> all -> parts

Node or link is decided by the graph of pairs: a unit that is bad with more than half of its
partners (two at least) is bad itself; a bad pair whose ends both work with others is a bad link.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from msgspec import Struct

from .pairs import Pair, PairTally, pair_of, rounds_of
from .trial import Judge, Result, Trial

Batches = Generator[list[Trial], list[Result], None]
_LEAST_ROUNDS = 3  # of three units each must have met both others
_MAX_CULPRITS = 8  # found one after another in groups; more than that is the network as a whole


class Culprit(Struct):
    """A node (one unit), a link (two), or a group that fails only together."""

    kind: str  # "node", "link", "undecided", "together"
    units: list[str]
    status: str  # "failed" or "slow"
    evidence: Result
    tried: int = 0  # partners that a node was tried with
    bad: int = 0  # of them, those with which it failed or was slow


class Found(Struct):
    """What the search says; `links` counts pairs that were tried, of all that there are."""

    culprits: list[Culprit] = []
    results: list[Result] = []
    links: int = 0
    of_links: int = 0


class Search:
    """One search over some units, in the order in which they are given."""

    def __init__(self, units: Sequence[str], judge: Judge, rounds: int) -> None:
        self.units = list(units)
        self.judge = judge
        self.rounds = max(_LEAST_ROUNDS, rounds)
        self.tally = PairTally()
        self.found = Found(of_links=len(units) * (len(units) - 1) // 2)
        self.apart: set[str] = set()  # in no further group: they, or one of their links, are bad

    def run(self) -> Batches:
        """Yields trials; `found` is complete when it ends, and true whenever it is stopped."""
        yield from self._pairs()
        yield from self._once_more()
        yield from self._with_others()
        self._conclude_pairs()
        yield from self._groups()

    def _try(
        self, groups: Iterable[Sequence[str]], stage: str
    ) -> Generator[list[Trial], list[Result], list[Result]]:
        """Results of these groups, which may overlap: in as many batches as that needs."""
        waiting = [Trial(tuple(group), stage) for group in groups]
        done: list[Result] = []
        while waiting:
            batch, waiting = _disjoint(waiting)
            results = yield batch
            self.found.results += results
            self.judge.mark(results)
            done += results
        return done

    def _pairs(self) -> Batches:
        for number, pairs in enumerate(rounds_of(self.units)):
            if number >= self.rounds and self.tally.good():
                break
            hopeless = self.tally.hopeless()
            wanted = [p for p in pairs if number == 0 or not hopeless & set(p)]
            results = yield from self._try(wanted, "pairs")
            self.tally.add(results)
            self.judge.learn(self.tally.results())
            self.judge.mark(self.tally.results())
        self.found.links = len(self.tally.pairs)

    def _once_more(self) -> Batches:
        """A bad pair is tried twice before it counts, unless one of its units is bad everywhere and
        each try of it takes all of its time.
        """
        hopeless = self.tally.hopeless()
        pairs = self.tally.pairs
        doubted = [p for p in self.tally.bad() if pairs[p].complete or not hopeless & p]
        results = yield from self._try([self._ordered(p) for p in doubted], "again")
        self.tally.add(results)

    def _with_others(self) -> Batches:
        """A unit that was bad with its only partners is tried with units that work."""
        wanted: list[Pair] = []
        for unit in self._unclear():
            partners = [u for u in self.tally.good() if pair_of(u, unit) not in self.tally.pairs]
            wanted += [pair_of(unit, other) for other in partners[:2]]
        unique = dict.fromkeys(wanted)
        results = yield from self._try([self._ordered(p) for p in unique], "with another")
        self.tally.add(results)
        self.found.links = len(self.tally.pairs)

    def _unclear(self) -> list[str]:
        in_bad = {unit for pair in self.tally.bad() for unit in pair}
        doubted = in_bad - set(self.tally.good())
        return [u for u in self.units if u in doubted and not self.tally.is_bad_node(u)]

    def _conclude_pairs(self) -> None:
        for unit in self.units:
            bad, tried = self.tally.counts(unit)
            if self.tally.is_bad_node(unit):
                evidence = self.tally.worst(unit)
                culprit = Culprit("node", [unit], evidence.status, evidence)
                culprit.tried, culprit.bad = tried, bad
                self._name(culprit)
        for pair in self.tally.bad():
            if not pair & self.apart:
                self._name_pair(self._ordered(pair), self.tally.pairs[pair])

    def _name_pair(self, units: list[str], evidence: Result) -> None:
        good = set(self.tally.good())
        kind = "link" if set(units) <= good else "undecided"
        self._name(Culprit(kind, units, evidence.status, evidence))

    def _name(self, culprit: Culprit) -> None:
        self.found.culprits.append(culprit)
        if culprit.kind == "together":
            return
        # Of a link one end is enough: the other one still takes part in groups.
        self.apart.add(culprit.units[-1])

    def _groups(self) -> Batches:
        for _ in range(_MAX_CULPRITS):
            left = [u for u in self.units if u not in self.apart]
            if len(left) < 3:
                return
            bad = yield from self._bad_group(left)
            if not bad:
                return
            before = len(self.found.culprits)
            yield from self._divide(bad)
            if any(c.kind == "together" for c in self.found.culprits[before:]):
                return

    def _bad_group(self, left: list[str]) -> Generator[list[Trial], list[Result], list[str]]:
        """The units of the first group that is bad twice; none where halves and all are good."""
        steps = [("all", [left])]
        if len(left) > 3:
            steps.insert(0, ("halves", list(_halves(left))))
        for stage, groups in steps:
            first = yield from self._try(groups, stage)
            doubted = [r.units for r in first if r.bad]
            again = yield from self._try(doubted, "again")
            for result in again:
                if result.bad:
                    return result.units
        return []

    def _divide(self, units: list[str]) -> Batches:
        """Name what is at fault in a group that is bad."""
        if len(units) == 2:
            yield from self._settle(units)
            return
        halves = _halves(units)
        results = yield from self._try([h for h in halves if len(h) > 1], "part")
        bad = [r.units for r in results if r.bad]
        if bad:
            yield from self._divide(bad[0])
            return
        one, other = halves
        one = yield from self._shrink(one, other)
        other = yield from self._shrink(other, one)
        if len(one) == len(other) == 1:
            yield from self._settle([*one, *other])
            return
        evidence = next(r for r in reversed(self.found.results) if r.bad)
        self._name(Culprit("together", [*one, *other], evidence.status, evidence))

    def _shrink(
        self, part: list[str], beside: list[str]
    ) -> Generator[list[Trial], list[Result], list[str]]:
        """The smallest half of halves of `part` that is still bad together with `beside`."""
        while len(part) > 1:
            for half in _halves(part):
                [result] = yield from self._try([[*half, *beside]], "part")
                if result.bad:
                    part = half
                    break
            else:
                return part
        return part

    def _settle(self, units: list[str]) -> Batches:
        """A bad pair that was found inside a group: by its other partners, is it node or link?"""
        results = yield from self._try([units], "again")
        self.tally.add(results)
        if not results[0].bad:
            evidence = next(r for r in reversed(self.found.results) if r.bad)
            self._name(Culprit("together", units, evidence.status, evidence))
            return
        yield from self._with_others()
        for unit in units:
            if self.tally.is_bad_node(unit):
                bad, tried = self.tally.counts(unit)
                culprit = Culprit("node", [unit], results[0].status, results[0])
                culprit.tried, culprit.bad = tried, bad
                self._name(culprit)
                return
        self._name_pair(units, results[0])

    def _ordered(self, pair: Pair) -> list[str]:
        return [u for u in self.units if u in pair]


def _halves(units: list[str]) -> tuple[list[str], list[str]]:
    middle = (len(units) + 1) // 2
    return units[:middle], units[middle:]


def _disjoint(waiting: list[Trial]) -> tuple[list[Trial], list[Trial]]:
    """(trials that have no unit in common, the others)"""
    taken: set[str] = set()
    batch, rest = [], []
    for trial in waiting:
        if taken & set(trial.units):
            rest.append(trial)
        else:
            taken |= set(trial.units)
            batch.append(trial)
    return batch, rest
