"""The rank that the program itself calls stuck or faulty, where ranks waited and nothing else shows for which
one: its word is worth more than that a waiter is mostly no culprit.
"""

from __future__ import annotations

from ...model.log_facts import AnyFact, GlooTimeout, KnownError, TimedOut
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_stories import NamedByProgram
from .candidate import First
from .scene import Scene

_RULE = "own_word"


def by_own_word(scene: Scene) -> First | None:
    """The one rank that the program's own lines call so; None where they call several so."""
    words = [f for f in scene.of(KnownError) if f.rule == _RULE]
    told = {int(f.values.get("blamed") or f.rank) for f in words}
    waited: list[AnyFact] = [*scene.of(TimedOut), *scene.of(GlooTimeout)]
    if len(told) != 1 or -1 in told or not waited:
        return None
    first = words[0]
    story = NamedByProgram(scene.quote(first))
    ranks = sorted(told)
    ground = sure(Ground.LOG_OWN_WORD)
    finding = Finding("not_entered", ranks, story, ground, nodes=scene.nodes(ranks))
    return First(finding, [*words, *waited[:1]], True)
