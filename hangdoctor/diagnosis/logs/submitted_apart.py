"""Horovod's list of stalled operations, where ranks have submitted different ones: no rank is only late.

Missing ranks:
0: [broadcast.a, broadcast.b]
1: [broadcast.b]
2: [broadcast.a]          1 waits in broadcast.a, 2 in broadcast.b

A rank that is late lacks all that others lack, and more: the ranks that lack one operation are then
among those that lack the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """The ranks that have not submitted an operation, for each that is named in the first list, or in a
    later one while those still stall; {} where a row of the first is cut, as Horovod does with long ones.
    """
    of_horovod = [fact for fact in facts if fact.by == "horovod"]
    rows = _first_list(of_horovod)
    if any(fact.cut or not fact.names for fact in rows):
        return {}
    found = _by_name(rows)
    later = [fact for fact in of_horovod if fact not in rows]
    if all(_stalls_on(row, later) for row in rows):
        last = {rank: fact for fact in of_horovod for rank in fact.ranks}
        found.update(_by_name(later, besides=found, last=last))
    return {name: frozenset(ranks) for name, ranks in found.items()}


def _by_name(
    rows: Sequence[Desync],
    besides: Mapping[str, set[int]] | None = None,
    last: Mapping[int, Desync] | None = None,
) -> dict[str, set[int]]:
    """The ranks that lack each operation, without those operations that a rank's cut row may hold, too."""
    found: dict[str, set[int]] = {}
    for fact in rows:
        for name in fact.names:
            if name not in (besides or {}):
                found.setdefault(name, set()).update(fact.ranks)
    cut = {rank for rank, fact in (last or {}).items() if fact.cut}
    return {name: ranks for name, ranks in found.items() if cut <= ranks}


def _stalls_on(row: Desync, later: Sequence[Desync]) -> bool:
    """Whether a later list has the row again, or another one of its rank with the same operations."""
    again = [fact for fact in later if fact.ranks == row.ranks]
    return row.times > 1 or any(set(row.names) <= set(fact.names) for fact in again)


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
