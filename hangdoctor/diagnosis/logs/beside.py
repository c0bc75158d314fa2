"""The logs beside other evidence of the same job: they agree with it, contradict it, or add what failed first."""

from __future__ import annotations

from ...model.diagnosis import Kind
from ...model.log_facts import GlooTimeout, TimedOut
from ..confidence import Less, agreed, lowered
from ..draft import Draft
from ..findings import Against, Clue, Finding, Op, Why
from ..findings.log_stories import LogAgrees, LogContradicts, Source
from ..ops.evidence import Note, Remark
from .candidate import First
from .scene import Scene, op_name, ranks_named
from .threads import of_thread

CRASH: frozenset[Kind] = frozenset({"dead", "error", "unreachable"})
# Kinds that say of a rank that it is not in the operation of the others.
_AWAY: frozenset[Kind] = frozenset(
    {"not_entered", "data_wait", "checkpoint_wait", "busy", "io_wait", "stopped", "unreachable"}
)
_TOGETHER_S = 3.0  # one limit ends the waits of all, as fast as they raise
_MORE = 0.1  # of confidence, before the logs' verdict takes the place of another


def weigh(draft: Draft, scene: Scene, found: First | None) -> None:
    """Compare each finding with the logs' waits, and the logs' own finding with all of them."""
    for finding in draft.findings:
        _by_waits(draft, scene, finding)
    if found is None:
        return
    if found.finding.kind in CRASH and found.named and not any(map(of_thread, found.facts)):
        _what_failed_first(draft, found.finding, scene.source)
    else:
        _by_name(draft, found.finding, scene.source)


# ---------------------------------------------------------------------- who waited


def clear_who_waited(draft: Draft, scene: Scene) -> None:
    """After the end: take away what blames ranks that reached gloo's limit when the others did. They
    had been waiting for someone else since then; one that came late would have reached it later.
    """
    left = [one for one in draft.findings if not _waited_as_long(scene, one)]
    if len(left) < len(draft.findings):
        draft.findings = left
        draft.status = draft.status if left else None


def _waited_as_long(scene: Scene, finding: Finding) -> bool:
    at = {f.rank: f.at for f in scene.of(GlooTimeout) if f.at}
    if finding.kind != "not_entered" or not set(finding.ranks) <= at.keys():
        return False
    others = [when for rank, when in at.items() if rank not in finding.ranks]
    own = [at[rank] for rank in finding.ranks]
    return bool(others and own) and max(own) - min(others) < _TOGETHER_S


def _by_waits(draft: Draft, scene: Scene, finding: Finding) -> None:
    """Who timed out was in the operation; a rank that is said to be outside of it was not.

    Numbers are compared within the logs only: a black box counts from another begin.
    """
    if finding.kind not in _AWAY:
        return
    waits = [w for w in scene.of(TimedOut) if w.rank >= 0 and op_name(w.op) == finding.where.op]
    blamed = set(finding.ranks)
    own = _beside_the_others(waits, blamed)
    if own:
        ranks = tuple(ranks_named(own))
        _contradict(
            draft, finding, ranks, LogContradicts(finding.kind, ranks, _op(own[0]), scene.source)
        )
        return
    in_gloo = [f for f in scene.of(GlooTimeout) if f.rank in blamed]
    if in_gloo:
        ranks = tuple(ranks_named(in_gloo))
        _contradict(
            draft, finding, ranks, LogContradicts(finding.kind, ranks, Op("gloo"), scene.source)
        )
        return
    waiting = [r for r in ranks_named([*waits, *scene.of(GlooTimeout)]) if r not in blamed]
    known = finding.waiters is None or set(waiting) <= set(finding.waiters.ranks)
    if waiting and known:
        op = _op(waits[0]) if waits else Op("")
        fact = LogAgrees(
            finding.kind, tuple(finding.ranks), op, tuple(waiting), source=scene.source
        )
        finding.add_clues([Clue("log", tuple(waiting), fact)])


def _beside_the_others(waits: list[TimedOut], blamed: set[int]) -> list[TimedOut]:
    """Waits of blamed ranks in the very operation in which others timed out."""
    places = {_place(w) for w in waits if w.rank not in blamed}
    return [w for w in waits if w.rank in blamed and _place(w) in places]


def _place(wait: TimedOut) -> tuple[str, int, str]:
    return wait.op, wait.seq, wait.group


def _op(wait: TimedOut) -> Op:
    return Op(op_name(wait.op), wait.seq)


# ---------------------------------------------------------------------- who is named


def _what_failed_first(draft: Draft, first: Finding, source: Source) -> None:
    """A failure of its own explains why a rank did not come, and comes before all others."""
    theirs = set(first.ranks)
    for finding in draft.findings:
        if set(finding.ranks) == theirs:
            if finding.kind in _AWAY | {"dead"}:
                finding.kind, finding.story = first.kind, first.story
                finding.frame = first.frame or finding.frame
            _agree(finding, first, source)
            return
    draft.findings.insert(0, first)


def _by_name(draft: Draft, first: Finding, source: Source) -> None:
    """The logs' finding agrees with those of the same ranks; else it contradicts the surest."""
    if not first.ranks:
        same = [f for f in draft.findings if f.kind == first.kind]
        for finding in same or [_surest(draft)]:
            finding.add_clues(first.clues)
        return
    alike = [f for f in draft.findings if _names_one_of(f, first)]
    for finding in alike:
        _agree(finding, first, source)
    if not alike:
        _of_others(draft, first, source)


def _names_one_of(finding: Finding, first: Finding) -> bool:
    """Whether it blames a rank that the logs blame."""
    return finding.kind != "in_communication" and not set(finding.ranks).isdisjoint(first.ranks)


def _of_others(draft: Draft, first: Finding, source: Source) -> None:
    """The logs name ranks that no finding names: the surer of both stays."""
    other = _surest(draft)
    other.add_clues(first.clues)
    ranks = tuple(first.ranks)
    if first.confidence > other.confidence + _MORE:
        first.against.append(Against(other.kind, tuple(other.ranks), Why.LOG_IS_SURER))
        draft.findings = [first if f is other else f for f in draft.findings]
        draft.notes.append(Note(Remark.LOG_DISAGREES, tuple(other.ranks), blamed=ranks))
        return
    _contradict(draft, other, ranks, LogContradicts(first.kind, ranks, source=source))


def _agree(finding: Finding, first: Finding, source: Source) -> None:
    fact = LogAgrees(first.kind, tuple(first.ranks), source=source)
    finding.add_clues([Clue("log", tuple(first.ranks), fact), *first.clues])
    if set(first.ranks) == set(finding.ranks):
        finding.confidence = agreed(finding.confidence, first.confidence)


def _contradict(
    draft: Draft, finding: Finding, ranks: tuple[int, ...], fact: LogContradicts
) -> None:
    finding.add_clues([Clue("log", ranks, fact)])
    finding.confidence = lowered(finding.confidence, Less.LOG_DISAGREES)
    blamed = tuple(finding.ranks)
    remark = Remark.LOG_DISAGREES if fact.op is None else Remark.LOG_SAW_IT_WAIT
    draft.notes.append(Note(remark, ranks, blamed=blamed))


def _surest(draft: Draft) -> Finding:
    return max(draft.findings, key=lambda f: f.confidence)
