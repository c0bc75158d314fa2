"""A candidate for what failed first, and how its facts are shown."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ...model.log_facts import AnyFact
from ..findings import Finding
from ..findings.log_stories import Someone


class First(Struct):
    """A candidate, and the facts that show it."""

    finding: Finding
    facts: list[AnyFact]
    named: bool  # ranks or nodes are known


def someone(fact: AnyFact) -> Someone:
    """What is known of a speaker without a rank."""
    if fact.rank >= 0:
        return Someone()
    return Someone(fact.local, fact.task, fact.pid, fact.worker)


def quotes(facts: Iterable[AnyFact], most: int = 4) -> list[AnyFact]:
    """The facts that are shown as evidence: one of each speaker."""
    seen: set[tuple[int, str]] = set()
    kept: list[AnyFact] = []
    for fact in facts:
        key = (fact.rank, fact.node)
        if key not in seen:
            seen.add(key)
            kept.append(fact)
    return kept[:most]
