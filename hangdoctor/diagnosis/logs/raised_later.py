"""The error that ended a rank after all others had waited for it to their limit, or a thread of it
before.

The first is no consequence of the others' ends: the rank was in no communication, tried something
again and again, and gave up later than they did. The second may be what the rank waited for, as for
a queue that this thread filled.
"""

from __future__ import annotations

from msgspec import structs

from ...model.log_facts import PythonError, RuleText
from ..findings.log_stories import RaisedLater
from .candidate import First
from .error_findings import filled
from .scene import Scene
from .threads import at_end


def add_own_error(scene: Scene, found: First) -> None:
    """To the only rank that did not wait."""
    finding = found.finding
    if finding.kind != "not_entered" or len(finding.ranks) != 1:
        return
    own = [f for f in scene.of(PythonError) if f.rank == finding.ranks[0] and _is_own(f)]
    last = own[-1] if own else _of_a_thread(scene, finding.ranks[0])
    if last is None:
        return
    rule = scene.logs.rules.get(last.rule, RuleText(meaning=""))
    meaning = filled(rule.meaning, last).partition(": ")[0]
    told = RaisedLater(last.error, meaning or last.message, last.frame, rule.advice)
    finding.raised = structs.replace(told, thread=last.thread)
    found.facts = [*found.facts, last]


def _of_a_thread(scene: Scene, rank: int) -> PythonError | None:
    """The only one that ended a thread, of this rank or of one that does not show."""
    ended = [
        error
        for position, error in scene.positioned(PythonError)
        if isinstance(error, PythonError) and error.thread and not at_end(scene, position)
    ]
    alone = len(ended) == 1 and ended[0].rank in (-1, rank) and bool(ended[0].error)
    return ended[0] if alone else None


def _is_own(fact: PythonError) -> bool:
    caught = fact.survived or fact.logged or fact.thread
    return bool(fact.error) and fact.role == "cause" and not caught
