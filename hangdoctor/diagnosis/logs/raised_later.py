"""The error that ended a rank after all others had waited for it to their limit.

It is no consequence of their ends, of which a rank that communicates with nobody learns nothing: it
tried something again and again, and gave up later than they did.
"""

from __future__ import annotations

from ...model.log_facts import PythonError, RuleText
from ..findings.log_stories import RaisedLater
from .candidate import First
from .error_findings import filled
from .scene import Scene


def add_own_error(scene: Scene, found: First) -> None:
    """To the only rank that did not wait."""
    finding = found.finding
    if finding.kind != "not_entered" or len(finding.ranks) != 1:
        return
    own = [f for f in scene.of(PythonError) if f.rank == finding.ranks[0] and _is_own(f)]
    if not own:
        return
    [*_, last] = own
    rule = scene.logs.rules.get(last.rule, RuleText(meaning=""))
    meaning = filled(rule.meaning, last).partition(": ")[0]
    finding.raised = RaisedLater(last.error, meaning or last.message, last.frame, rule.advice)
    found.facts = [*found.facts, last]


def _is_own(fact: PythonError) -> bool:
    return bool(fact.error) and fact.role == "cause" and not (fact.survived or fact.logged)
