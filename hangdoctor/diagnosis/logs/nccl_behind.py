"""Calls that NCCL printed of several ranks alike, and one more of some: the others had not come to it yet, or
the log ends before.
"""

from __future__ import annotations

from msgspec import structs

from ...model.log_facts import NcclCall
from ..findings import Op
from ..findings.log_counts import CalledLess
from ..findings.log_remaining import LogRemaining
from .nccl_apart import NAMES, rank_of
from .scene import Scene


def with_calls(scene: Scene, why: LogRemaining) -> LogRemaining:
    """The reason, with who had called less than another, where the calls before are the same."""
    lists = _by_rank(scene)
    if len(lists) < 2:
        return why
    ordered = sorted(lists.items(), key=lambda item: (len(item[1]), item[0]))
    (_, least), (_, most) = ordered[0], ordered[-1]
    fewest = [rank for rank, own in ordered if own == least]
    same = all(own == most[: len(own)] for _, own in ordered)
    if not same or len(least) == len(most) or 2 * len(fewest) > len(lists):
        return why
    name, count = most[len(least)]
    further = tuple(sorted(rank for rank, own in ordered if len(own) > len(least)))
    less = CalledLess(tuple(sorted(fewest)), further, Op(NAMES.get(name, name)), count)
    return structs.replace(why, less=less)


def _by_rank(scene: Scene) -> dict[int, list[tuple[str, int]]]:
    """The calls of each rank in their order; {} of several communicators, or where one was printed twice,
    so that it is kept once.
    """
    facts = scene.of(NcclCall)
    found: dict[int, list[tuple[str, int]]] = {}
    comms: dict[int, set[str]] = {}
    for fact in sorted(facts, key=lambda f: (f.file, f.line)):
        rank = rank_of(fact, facts)
        found.setdefault(rank, []).append((fact.op, fact.count))
        comms.setdefault(rank, set()).add(fact.comm)
    once = all(fact.times == 1 for fact in facts) and all(len(own) == 1 for own in comms.values())
    return found if once and -1 not in found and len({f.size for f in facts}) == 1 else {}
