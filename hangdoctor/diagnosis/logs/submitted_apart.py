"""Horovod's list of stalled operations, where ranks have submitted different ones: no rank is only late.

Missing ranks:
0: [broadcast.a, broadcast.b]
1: [broadcast.b]
2: [broadcast.a]          1 waits in broadcast.a, 2 in broadcast.b

A rank that is late lacks all that others lack, and more: the ranks that lack one operation are then
among those that lack the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from ...model.log_facts import Desync
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_stories import SubmittedApart
from .candidate import First
from .scene import Scene

_GAP = 2  # lines from one row to the next
_SHOWN = 3  # operations that are said


def lacking(facts: Sequence[Desync]) -> dict[str, frozenset[int]]:
    """The ranks that have not submitted an operation, for each that is named in the first list; {} where a
    row of it is cut, as Horovod does with long ones.
    """
    found: dict[str, set[int]] = {}
    rows = _first_list([fact for fact in facts if fact.by == "horovod"])
    if not all(fact.names for fact in rows):
        return {}
    for fact in rows:
        for name in fact.names:
            found.setdefault(name, set()).update(fact.ranks)
    return {name: frozenset(ranks) for name, ranks in found.items()}


def _first_list(facts: Sequence[Desync]) -> list[Desync]:
    """The rows of one warning: it comes again, with other operations, for as long as something stalls."""
    rows: list[Desync] = []
    for fact in facts:
        if rows and (fact.file != rows[-1].file or fact.line > rows[-1].line + _GAP):
            break
        rows.append(fact)
    return rows


def submitted_apart(facts: Sequence[Desync]) -> bool:
    """Whether two operations lack ranks in such a way that each side has submitted what the other has not."""
    sets = set(lacking(facts).values())
    return any(not (one <= other or other <= one) for one, other in combinations(sets, 2))


def different_calls(scene: Scene) -> First | None:
    """The ranks that wait in different operations, which names none of them."""
    facts = [f for f in scene.of(Desync) if f.by == "horovod" and f.names]
    if not submitted_apart(facts):
        return None
    lack = lacking(facts)
    every = frozenset(scene.everyone) | {rank for ranks in lack.values() for rank in ranks}
    sides = [(name, tuple(sorted(every - ranks))) for name, ranks in lack.items() if every - ranks]
    neither = tuple(sorted(frozenset.intersection(*lack.values())))
    story = SubmittedApart(tuple(sides[:_SHOWN]), neither, len(sides))
    finding = Finding("order", [], story, sure(Ground.LOG_APART))
    return First(finding, [*facts], False)
