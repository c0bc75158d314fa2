"""A job that is over, by its boxes: its operations show a hang only where nothing failed before.

Ranks that were alive and ended with the others have entered nothing since: a crash explains all of
that, and so does an end from outside that came while the job went on.
"""

from __future__ import annotations

import signal

from ...model.log_facts import Ended, PythonError
from ...model.operations import RankOps
from ..case import Case
from ..confidence import Ground, sure
from ..draft import Draft
from ..findings import Finding
from ..findings.log_stories import DidNotEnd
from .first import First
from .scene import Scene, ranks_named

_CRASH = frozenset({"dead", "error", "unreachable"})
_SHORTEST_S = 2.0  # a wait that says something
_LONGER = 3.0  # than any pause of the job before
_ABORTS = (-signal.SIGABRT, 128 + signal.SIGABRT)
_OF_TIMEOUTS = ("gloo_timeout", "store_timeout", "watchdog_abort")


def settle(case: Case, draft: Draft, scene: Scene, found: First | None) -> First | None:
    """Drop what the operations say of a job that did not hang.

    Returns what the ends of the processes still name: None where an operation that the ranks
    disagreed about explains them. The library aborts whichever rank notices it first.
    """
    disagreed = [f for f in draft.findings if f.kind == "mismatch"]
    if disagreed and found is not None and _aborted(scene, found):
        draft.findings = disagreed
        draft.status = "failed"
        return None
    crashed = found is not None and found.named and found.finding.kind in _CRASH
    if crashed or _lost_peers(scene) or not _waited_long(case, scene):
        draft.findings = []
        draft.status = None
        draft.waits = []
    return found


def did_not_end(case: Case, draft: Draft, scene: Scene) -> First | None:
    """Ranks that did not end at a SIGTERM: where all have entered the operation that the others had
    waited in for long, one that was stopped inside of it is what they waited for.
    """
    stayed = [f for f in scene.of(Ended) if f.stayed_s and f.rank >= 0]
    ranks = ranks_named(stayed)
    named = any(f.ranks and f.kind != "in_communication" for f in draft.findings)
    few = 2 * len(ranks) <= len(scene.everyone)
    if not ranks or named or not few or not _waited_long(case, scene):
        return None
    draft.findings = []
    finding = Finding(
        kind="stopped",
        ranks=ranks,
        story=DidNotEnd(min(f.stayed_s for f in stayed)),
        confidence=sure(Ground.LOG_STAYED),
        nodes=scene.nodes(ranks),
    )
    return First(finding, [*stayed], True)


def _aborted(scene: Scene, found: First) -> bool:
    """Whether the process that ended first was ended by an abort of its own."""
    ends = [f for f in scene.of(Ended) if f.rank in found.finding.ranks]
    return bool(ends) and all(f.code in _ABORTS for f in ends)


def _lost_peers(scene: Scene) -> bool:
    """Ranks that ended because another one was gone, and not after a wait to the limit."""
    rules = {error.rule for error in scene.victims()}
    return "peer_closed" in rules and rules.isdisjoint(_OF_TIMEOUTS)


def _waited_long(case: Case, scene: Scene) -> bool:
    """Whether a rank waited in an operation, at its end, longer than the job ever did before."""
    ends = {f.rank: f.at for f in scene.facts if isinstance(f, Ended | PythonError)}
    every = [v.capture.ops for v in case.views if v.capture.ops is not None]
    longest, usual = 0.0, 0.0
    for ops in every:
        end = max(ops.heartbeat_s, ends.get(ops.rank, 0.0))
        entered = [o.entered_s for o in ops.unfinished() if o.entered_s > 0]
        longest = max([longest, *(end - at for at in entered)])
        usual = max(usual, _longest_pause(ops))
    return longest > max(_SHORTEST_S, _LONGER * usual)


def _longest_pause(ops: RankOps) -> float:
    """Between two operations that it entered, or in one; set-up apart."""
    done = [o for o in ops.operations if o.state == "done" and o.op != "init_process_group"]
    return max((o.left_s - o.entered_s for o in done), default=0.0)
