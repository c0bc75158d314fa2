"""What a process had printed whose end another one reports, as Ray's raylet does: lines of workers arrive late
and in any order, so that its own words may stand above the report or below it.
"""

from __future__ import annotations

from msgspec import structs

from ...model.log_facts import KnownError, PythonError, UnreadFailure
from ..findings.log_stories import FailedFirst
from .candidate import First
from .error_findings import OF_ACTORS
from .scene import Scene

_FOR_ANOTHER = "said_above"  # a rule


def add_own_words(scene: Scene, death: First, story: FailedFirst) -> bool:
    """The last line of its own that says what failed; whether there is one, of the only process of whose
    end is reported.
    """
    reports = [f for f in death.facts if isinstance(f, KnownError) and f.rule in OF_ACTORS]
    pids = {f.pid for f in reports}
    if len(reports) != len(death.facts) or len(pids) != 1 or 0 in pids:
        return False
    own = [f for f in scene.unread if f.pid in pids and f.file == reports[0].file]
    own = [f for f in own if _says_what(f)]
    if not own:
        return False
    last = own[-1]
    said = scene.quote(last, last.text)
    death.finding.story = structs.replace(story, said=said, reported=True)
    death.facts = [last, *death.facts]
    return True


def ended_for_another(scene: Scene, report: PythonError | KnownError) -> bool:
    """Whether the process of whose end is reported had said that it ends as another one has failed."""
    said = [f for f in scene.of(KnownError) if f.rule == _FOR_ANOTHER and f.pid == report.pid > 0]
    return any(f.file == report.file and f.line < report.line for f in said)


def _says_what(fact: UnreadFailure) -> bool:
    return not (fact.general or fact.between or fact.launcher)
