"""Of a job that is over: ranks that made different calls before anything failed, and what is left to
say where no rank can be singled out.

A rank's own check of a result, or the library's of a size, fails where the wrong call of another
rank arrives. All that fail alike were told the same.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from msgspec import structs

from ...model.log_facts import Ended, PythonError
from ...model.operations import P2P, STORE, RankOps
from .. import compiled_calls
from ..case import Case
from ..draft import Draft
from ..findings import Apart, DecidedBy, Disagrees, Finding, InOther, Op, Ring, UnsetKey
from ..findings.log_remaining import LogRemaining, Undecided
from ..findings.log_stories import FailedFirst
from ..gloo_alone import is_gloo_alone
from ..operations import gather
from .candidate import First
from .first_error import led_to_its_wait
from .scene import Scene

_AT_ONCE_S = 3.0  # between errors that one result brings
_JUST_BEFORE, _ALL = 4, 512  # operations of a rank, before it failed
_ABORTS = (-signal.SIGABRT, 128 + signal.SIGABRT)
_OPEN = (Apart.NO_ORDER, Apart.EITHER, Apart.RING)


def look_back(case: Case, draft: Draft, scene: Scene, found: First | None) -> First | None:
    """What failed first, after what the records show of the calls before it.

    Returns `found`; None where different calls explain it, which are the draft's finding then.
    """
    if found is None:
        _before_the_wait(case, draft)
    if draft.findings or found is None:
        return found
    of_errors = isinstance(found.finding.story, FailedFirst)
    own = [f for f in found.facts if isinstance(f, PythonError)] if of_errors else []
    if own and all(led_to_its_wait(scene, error) for error in own):
        return found  # what it called then is what handled it
    alike = _alike(case, scene, own)
    if not alike and not aborted(found) and not (own and not any(f.rule for f in own)):
        return found  # a known error of its own: a device, a disk, memory
    parted = _parted(case, since=_ALL if alike or aborted(found) else _JUST_BEFORE)
    if parted is not None:
        draft.findings, draft.status = [parted], "failed"
        return None
    if aborted(found):
        return _unless_inside(case, draft, found)
    return _of_none(found, own) if alike else found


def _before_the_wait(case: Case, draft: Draft) -> None:
    """Of a wait whose end names no rank, or all sides: which calls were apart before it."""
    named = [finding for finding in draft.findings if not is_open(finding)]
    if named or not case.waiting:
        return
    parted = _parted(case, since=_ALL)
    if parted is not None:
        draft.findings, draft.status = [parted], "hang"


def _alike(case: Case, scene: Scene, errors: Sequence[PythonError]) -> bool:
    """Whether every rank raised it, all at one moment, after they had communicated."""
    ranks = {f.rank for f in errors}
    times = [f.at for f in errors if f.at > 0]
    at_once = bool(times) and max(times) - min(times) <= _AT_ONCE_S
    together = [v.capture.ops for v in case.views if v.rank in ranks and v.capture.ops is not None]
    talked = len(together) == len(ranks) and all(ops.has_communicated() for ops in together)
    return len(ranks) > 1 and ranks >= set(scene.everyone) and at_once and talked


def _parted(case: Case, since: int) -> Finding | None:
    """Other calls than those of the others, among the last operations of each."""
    from ..ops.first_disagreement import first_disagreement

    found = first_disagreement(gather(case, []), newest=since)
    return found if found is not None and not is_open(found) else None


def _of_none(found: First, errors: Sequence[PythonError]) -> First:
    """The same failure, of which no rank is known to be the first."""
    finding = found.finding
    assert isinstance(finding.story, FailedFirst)
    finding.story = structs.replace(finding.story, alike=tuple(sorted(f.rank for f in errors)))
    finding.ranks, finding.nodes = [], []
    return First(finding, found.facts, False)


# ---------------------------------------------------------------------- two sides


def is_open(finding: Finding) -> bool:
    """Whether it names all sides, since nothing shows which of them is wrong; two ranks in a transfer
    with each other are the two whose calls do not match.
    """
    story = finding.story
    if isinstance(story, Disagrees):
        return story.ground is DecidedBy.UNDECIDED
    if isinstance(story, InOther):
        return story.how in _OPEN
    if isinstance(story, UnsetKey):
        return story.instead is None
    return isinstance(story, Ring) and not story.sides


def leave_open(case: Case, draft: Draft) -> LogRemaining | None:
    """Takes findings that name all sides out of the draft; what is left to say, if nothing else is
    found.
    """
    both = [f for f in draft.findings if is_open(f) and not _keeps_all_others(case, f)]
    if not both or len(both) < len(draft.findings):
        return None
    draft.findings, draft.status = [], "unknown"
    return _sides(both[0])


def _keeps_all_others(case: Case, finding: Finding) -> bool:
    """Whether it is one rank in a wait for a key, and all others wait in one operation of all, to which
    that rank did not come.
    """
    if not isinstance(finding.story, UnsetKey) or len(finding.ranks) != 1:
        return False
    others = [view for view in case.views if view.rank not in finding.ranks]
    if len(others) < 2 or len(others) != case.world_size - 1:
        return False
    if compiled_calls.all_in_jax(others):  # whose calls no box has
        return len({(view.place.op, view.place.at) for view in others}) == 1
    held = [_collective(v.capture.ops) if v.capture.ops is not None else None for v in others]
    return held[0] is not None and held.count(held[0]) == len(held)


def _collective(ops: RankOps) -> tuple[str, int] | None:
    """The one collective that a rank waits in: its group, and its number."""
    found = {(o.group, o.seq) for o in ops.unfinished_in_training() if o.op not in STORE | P2P}
    return found.pop() if len(found) == 1 else None


def _sides(finding: Finding) -> LogRemaining:
    story, ranks = finding.story, tuple(finding.ranks)
    if isinstance(story, UnsetKey):
        return LogRemaining(Undecided.UNSET_KEY, ranks, Op(story.keys), source="boxes")
    if isinstance(story, Disagrees):
        values = ", ".join(story.my_values), ", ".join(story.their_values)
        two = story.mine, story.theirs
        return LogRemaining(
            Undecided.TWO_SIDES,
            ranks,
            two[0],
            other=two[1],
            sides=values,
            on=story.sides,
            source="boxes",
        )
    each = story.each if isinstance(story, Ring) else ()
    return LogRemaining(Undecided.RING, ranks, waited=each, source="boxes")


# ---------------------------------------------------------------------- aborts


def aborted(found: First) -> bool:
    """Whether all that it names were ended by SIGABRT while they ran."""
    ends = [f for f in found.facts if isinstance(f, Ended)]
    return bool(ends) and all(f.code in _ABORTS and not f.left for f in ends)


def missing_beside(case: Case, findings: Sequence[Finding], found: First) -> list[Finding]:
    """Few ranks that were not in the operation inside of which others were aborted: what those
    received came from them.
    """
    ranks = set(found.finding.ranks)
    if not aborted(found) or not ranks or _inside(case, found) is None:
        return []
    return [f for f in findings if f.kind == "not_entered" and _lacked(f, ranks)]


def _lacked(finding: Finding, aborted_ranks: set[int]) -> bool:
    waiting = set(finding.waiters.ranks) if finding.waiters is not None else set()
    few = len(finding.ranks) < len(waiting)
    return few and aborted_ranks <= waiting and aborted_ranks.isdisjoint(finding.ranks)


def _inside(case: Case, found: First) -> Op | None:
    """The operation of gloo that each of the ranks was in when it was aborted."""
    if not is_gloo_alone(case):
        return None
    held = None
    for view in case.views:
        if view.rank in found.finding.ranks:
            ops = view.capture.ops
            inside = [o for o in ops.unfinished() if not o.asynchronous] if ops is not None else []
            if not inside:
                return None
            held = Op(inside[-1].op, inside[-1].seq, site=inside[-1].site)
    return held


def _unless_inside(case: Case, draft: Draft, found: First) -> First | None:
    """Not those that were aborted for what they received, by whichever rank sent it."""
    op = _inside(case, found)
    if op is None:
        return found
    ranks = tuple(found.finding.ranks)
    draft.remaining = LogRemaining(Undecided.ABORTED_INSIDE, ranks, op, source="boxes")
    draft.status = "unknown"
    return None
