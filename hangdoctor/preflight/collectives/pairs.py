"""Which pairs are tried, and what their results say of each unit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .trial import Result

Pair = frozenset[str]
_SURE = 2  # partners with which a unit must fail before it is named itself


def pair_of(one: str, other: str) -> Pair:
    """Both, in no order."""
    return frozenset((one, other))


def rounds_of(units: Sequence[str]) -> Iterator[list[list[str]]]:
    """Pairs for each round, every pair at most once: the circle method of a round-robin tournament.

    n units have n-1 rounds; n where n is odd, one unit pausing in each.
    """
    circle: list[str | None] = [*units]
    if len(circle) % 2:
        circle.append(None)
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        opposite = zip(circle[:half], reversed(circle[half:]), strict=True)
        pairs = [[a, b] for a, b in opposite if a is not None and b is not None]
        yield [sorted(pair, key=list(units).index) for pair in pairs]
        circle = [circle[0], circle[-1], *circle[1:-1]]


class PairTally:
    """The latest result of each pair."""

    def __init__(self) -> None:
        self.pairs: dict[Pair, Result] = {}

    def add(self, results: Iterable[Result]) -> None:
        """Take these; a pair that was tried before has the new result."""
        for result in results:
            self.pairs[frozenset(result.units)] = result

    def results(self) -> list[Result]:
        """All of them."""
        return list(self.pairs.values())

    def bad(self) -> list[Pair]:
        """Pairs that failed or were slow."""
        return [pair for pair, result in self.pairs.items() if result.bad]

    def good(self) -> list[str]:
        """Units that work with some other one."""
        working = (pair for pair, result in self.pairs.items() if not result.bad)
        return list(dict.fromkeys(unit for pair in working for unit in sorted(pair)))

    def counts(self, unit: str) -> tuple[int, int]:
        """(bad, all) pairs of a unit with others that work with someone: a partner that works with
        no other unit says nothing.
        """
        working = set(self.good())
        own = [r for pair, r in self.pairs.items() if unit in pair and pair - {unit} <= working]
        return sum(result.bad for result in own), len(own)

    def is_bad_node(self, unit: str) -> bool:
        """Bad with more than half of its partners that work with others, two at least."""
        bad, tried = self.counts(unit)
        return bad >= _SURE and 2 * bad > tried

    def hopeless(self) -> set[str]:
        """Units that are bad with two others at least and good with none."""
        units = {unit for pair in self.pairs for unit in pair} - set(self.good())
        return {u for u in units if self.is_bad_node(u)}

    def worst(self, unit: str) -> Result:
        """The bad result of a unit that says most: a failure before a slow one."""
        own = [self.pairs[pair] for pair in self.bad() if unit in pair]
        return min(own, key=lambda result: (result.status != "failed", result.stage != "pairs"))
