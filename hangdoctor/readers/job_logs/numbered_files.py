"""Files of one name with a number each, of which some show the rank of their process: ``es.0.log``
to ``es.7.log``.

Where each of those that do is of the rank that its number says, and the numbers are those from 0
on, the others are, too: a rank that only printed its steps, until it was stopped, has no other
name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ...model.log_facts import AnyFact
from ...text.late import late

_NUMBERED = late(r"(\D*)(\d{1,6})(\D*)")
_SHOWN = 2  # files that show their rank, at least


def ranks_of(names: Sequence[str], heard: Sequence[Collection[int]]) -> dict[int, int]:
    """Rank by the place of the file among `names`; `heard`: the ranks that each of them shows."""
    parts = [_NUMBERED.fullmatch(name) for name in names]
    series: dict[tuple[str, str], dict[int, int]] = {}
    for at, match in enumerate(parts):
        if match is not None:
            series.setdefault((match[1], match[3]), {})[at] = int(match[2])
    found: dict[int, int] = {}
    for numbers in series.values():
        shown = [at for at in numbers if heard[at]]
        of_own = all(set(heard[at]) == {numbers[at]} for at in shown)
        whole = sorted(numbers.values()) == list(range(len(numbers)))
        if len(shown) >= _SHOWN and of_own and whole:
            found |= numbers
    return found


def give(facts: Iterable[AnyFact], ranks: dict[int, int]) -> None:
    """The rank of its file to each fact that has none."""
    for fact in facts:
        if fact.rank < 0 and fact.local < 0 and fact.file in ranks:
            fact.rank = ranks[fact.file]
