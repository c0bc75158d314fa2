"""Pass: joins what operations say with what stacks and /proc say of the same ranks.

Operations decide which rank blocks which; stacks and /proc decide what a rank does instead. Where
the two name different ranks with confidence, the report says so and is less sure.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ..model.capture import Frame
from ..model.diagnosis import Kind, Status
from ..model.operations import P2P, STORE
from ..stacks.user_code import is_users
from . import file_locks, outsiders, start_up
from . import held_by as holding
from .case import Case, op_of
from .confidence import CLEAR, Less, agreed, lowered
from .draft import Draft, ordered, ranks_blamed
from .findings import (
    AllIn,
    Apart,
    Disagrees,
    Diverged,
    Finding,
    InOther,
    NeverReached,
    Op,
    Ring,
    ShutDown,
    Story,
)
from .ops.evidence import Note, Remark
from .position import is_rounds_behind, operation_key
from .recorders import by_recorder, records_of
from .view import RankView

# Kinds that are facts about a process: they say more than "did not enter".
_FACTS: frozenset[Kind] = frozenset({"dead", "stopped", "io_wait", "interpreter_lock"})
_LESS_THAN_A_FACT: frozenset[Kind] = frozenset({"not_entered", "unreachable", "busy"})


def run(case: Case, draft: Draft) -> None:
    """The findings of the operations, supported; else those of the stacks."""
    ops = draft.ops
    if ops is None or draft.beyond:
        draft.findings = draft.by_stacks
    elif start_up.decides(case, draft.by_stacks):
        # What records say of a set-up is that some have not come; why, they cannot see.
        draft.findings, draft.status = _since(draft.by_stacks, ops.findings), "hang"
    elif ops.findings:
        draft.findings = ordered(join(case, draft, ops.findings)) or draft.by_stacks
        draft.status = _status_of(draft.findings, ops.status)
    elif ops.status == "healthy" and not _contradicted(draft):
        # Silence is not a sign of health: who was not seen may be the one that hangs.
        draft.status = "unknown" if case.unseen else "healthy"
    else:
        draft.findings = draft.by_stacks


def _status_of(findings: list[Finding], by_ops: Status) -> Status | None:
    """A process that is stopped or dead is a hang, whatever still moves; None where nothing is left of
    what the operations found.
    """
    if any(finding.kind != "slow" for finding in findings):
        return "hang"
    return by_ops if findings else None


def _since(found: list[Finding], by_ops: Sequence[Finding]) -> list[Finding]:
    """The findings with how long the others have been waiting, which the records know."""
    seconds = max((c.waiters.seconds for c in by_ops if c.waiters is not None), default=0.0)
    for finding in found:
        if finding.waiters is not None and seconds > finding.waiters.seconds:
            finding.waiters = structs.replace(finding.waiters, seconds=seconds)
    return found


def _contradicted(draft: Draft) -> bool:
    """Whether processes or stacks show a fault that the operations cannot see."""
    # A rank that holds a file lock and goes on is no fault.
    facts = any(c.kind != "slow" for c in draft.facts)
    return facts or any(c.kind == "end_stall" for c in draft.by_stacks)


def join(case: Case, draft: Draft, by_ops: list[Finding]) -> list[Finding]:
    """The operations' findings with the evidence of the others, and facts about further ranks; []
    where none of the operations' own is left.
    """
    found = _credible(case, draft, file_locks.absorb(draft, by_ops))
    if not found:
        return []
    for finding in found:
        _add_support(case, draft, finding)
        _add_what_holds(case, finding)
    named = ranks_blamed(found)
    contrary = [c for c in draft.by_stacks if _contradicts(c, named)]
    for other in contrary:
        blamed = tuple(sorted(named))
        note = Note(Remark.STACKS_DISAGREE, tuple(other.ranks), frame=other.frame, blamed=blamed)
        draft.notes.append(note)
    if contrary:
        for finding in found:
            finding.confidence = lowered(finding.confidence, Less.STACKS_DISAGREE)
    further = [*draft.facts, *(c for c in draft.by_stacks if _fails_alone(case, draft, c))]
    return found + [c for c in further if not set(c.ranks) & named]


def _fails_alone(case: Case, draft: Draft, by_stacks: Finding) -> bool:
    """Whether it is on one rank that tries again and again what fails, whoever else is named."""
    views = [v for v in case.alive if v.rank in by_stacks.ranks]
    free = by_stacks.kind == "busy" and draft.excused.isdisjoint(by_stacks.ranks)
    return free and bool(views) and all(map(outsiders.keeps_failing, views))


def _contradicts(by_stacks: Finding, named: set[int]) -> bool:
    """Whether the stacks clearly name other ranks, by more than a fact about their processes."""
    if by_stacks.kind in _FACTS or by_stacks.confidence < CLEAR:
        return False
    if isinstance(by_stacks.story, file_locks.STORIES):
        return False
    return not set(by_stacks.ranks) & named


def _credible(case: Case, draft: Draft, by_ops: list[Finding]) -> list[Finding]:
    """Without what facts refute.

    Not all have come to an operation of which a member is dead or stopped, or runs code of its own
    inside of the call (as it pickles an object). A wait for a key of the store is for the rank that
    sets it. Who waits in a collective that no recorder counts has not left out the one of the others.
    A rank whose process was read is not unreachable.
    """
    unable = ranks_blamed(draft.facts) | _inside_of_a_call(case, draft)
    waits = {v.rank for v in case.waiting}
    beyond = _waiting_beyond_records(case)
    named = ranks_blamed(by_ops)
    outside = any(_contradicts(c, named) for c in draft.by_stacks)
    other_causes = outside or len(by_ops) + len(draft.facts) > 1
    kept: list[Finding] = []
    for finding in by_ops:
        everyone = finding.kind == "in_communication"
        refuted = everyone and not unable.isdisjoint(finding.ranks)
        refuted = refuted or (finding.kind == "not_entered" and beyond.issuperset(finding.ranks))
        at_key = finding.where.op == "store_wait" and (everyone or waits.issuperset(finding.ranks))
        if not refuted and not (at_key and other_causes):
            seen = _seen_by_stacks(case, draft, finding) or _one_of_ring(case, draft, finding)
            kept.append(seen or _apart_by_stacks(draft, finding) or finding)
    return kept


def _waiting_beyond_records(case: Case) -> set[int]:
    """Ranks that wait, by their stacks, in a collective of which torch's recorder knows nothing, as for a
    key of the store or in Ray's report. One that the black box shows, as of a group of gloo's
    beside NCCL, is a call that the others have not made.
    """
    if not by_recorder(case):
        return set()
    records, _ = records_of(case)
    waiting = [v for v in case.waiting if v.place.kind == "collective" and not _in_own_box(v)]
    return {v.rank for v in waiting if v.rank in records and not records[v.rank].unfinished()}


def _in_own_box(view: RankView) -> bool:
    """Whether its black box has a collective that it is in, with others."""
    ops = view.capture.ops
    return ops is not None and any(o.op not in P2P and o.op not in STORE for o in ops.unfinished())


def _inside_of_a_call(case: Case, draft: Draft) -> set[int]:
    """Ranks that the stacks blame, and that are elsewhere in a call which their records have as
    entered and which no handle stands for.
    """
    blamed = ranks_blamed(draft.by_stacks)
    found: set[int] = set()
    for view in case.alive:
        open_calls = view.capture.ops.unfinished() if view.capture.ops is not None else []
        called = any(o.state == "entered" and not o.asynchronous for o in open_calls)
        if called and view.rank in blamed and view.path and not view.place.communicates:
            found.add(view.rank)
    return found


def _seen_by_stacks(case: Case, draft: Draft, finding: Finding) -> Finding | None:
    """What the stacks say of ranks that have no records but were captured."""
    views = [v for v in case.views if v.rank in finding.ranks]
    if finding.kind != "unreachable" or not all(v.path for v in views):
        return None
    ranks = set(finding.ranks)
    same = [c for c in draft.by_stacks if set(c.ranks) >= ranks and c.kind != "unreachable"]
    if not same:
        return None
    same[0].clues += finding.clues
    return same[0]


def _apart_by_stacks(draft: Draft, finding: Finding) -> Finding | None:
    """Of an operation that all have entered alike, as far as records show: what stacks show to differ,
    such as the root, which gloo's recorder leaves out.
    """
    if finding.kind != "in_communication":
        return None
    apart = [
        c for c in draft.by_stacks if c.kind == "mismatch" and set(c.ranks) <= set(finding.ranks)
    ]
    if len(apart) != 1:
        return None
    apart[0].add_clues(finding.clues)
    return apart[0]


def _by_gloo_alone(case: Case) -> bool:
    """Whether all records are of gloo's recorder, which shows less of a ring than stacks do."""
    records = [v.capture.ops for v in case.alive if v.capture.ops is not None]
    return all(o.source == "flight_recorder" and not o.runs_ahead for o in records)


def _one_of_ring(case: Case, draft: Draft, finding: Finding) -> Finding | None:
    """Of a ring whose records show no wrong call, the one rank for which the sends and receives of
    several others wait, by their stacks.
    """
    if not isinstance(finding.story, Ring) or finding.story.mine is not None:
        return None
    # Where all ranks are at one line, stacks do not show that it uses several groups in a ring.
    decided = len(draft.by_stacks) == 1 and not isinstance(draft.by_stacks[0].story, AllIn)
    if decided and _by_gloo_alone(case):
        draft.by_stacks[0].add_clues(finding.clues)
        return draft.by_stacks[0]
    found = [c for c in draft.by_stacks if isinstance(c.story, InOther) and len(c.ranks) == 1]
    if len(found) != 1 or not set(found[0].ranks) <= set(finding.ranks):
        return None
    story = found[0].story
    sides = story.sides if isinstance(story, InOther) else ()
    if sum(len(ranks) for ranks, op in sides if op.peer in found[0].ranks) < 2:
        return None
    found[0].add_clues(finding.clues)
    return found[0]


def _add_what_holds(case: Case, finding: Finding) -> None:
    """Operations know that a rank did not come; its process knows what it waits for instead."""
    views = [v for v in case.alive if v.rank in finding.ranks]
    finding.children = finding.children or any(v.capture.children for v in views)
    if _say_what_else(finding, views) or len(finding.ranks) != 1:
        return
    held = outsiders.held_by(case, finding.kind, views)
    if held is not None:
        finding.holding = held
        finding.add_clues(holding.clues(held, views[0]))


def _say_what_else(finding: Finding, views: Sequence[RankView]) -> bool:
    """Put in which other communication ranks are that did not come, where all are in one."""
    story = finding.story
    if not isinstance(story, NeverReached) or story.op is None or finding.kind != "not_entered":
        return False
    if story.instead is not None:
        return True
    calls = {operation_key(view) for view in views}
    if len(calls) != 1 or not all(v.waits and v.place.communicates for v in views):
        return False
    instead = op_of(views)
    if instead.name == story.op.name:
        return False
    finding.story = structs.replace(story, instead=instead)
    return True


def _add_support(case: Case, draft: Draft, finding: Finding) -> None:
    """What the other passes know of the finding's ranks."""
    for other in draft.facts + draft.by_stacks:
        if other is not finding and set(other.ranks) <= set(finding.ranks):
            _support(case, finding, other)


def _decide_by_lines(case: Case, finding: Finding, other: Finding) -> None:
    """Records that end in two calls do not show whether one was left out or made twice; the lines do,
    where the rank has passed that of the others, or alone comes to its own. Who is in an earlier round
    of a loop has left out no call of a later one; who made one call again had passed that line before.
    """
    story, lines = finding.story, other.story
    if not isinstance(story, Diverged) or not isinstance(lines, InOther):
        return
    paths = {v.rank: v.path for v in case.views}
    own, others = paths.get(finding.ranks[0], []), paths.get(story.reference, [])
    behind = is_rounds_behind(own, others)
    if story.how != "either" and not (story.how == "skipped" and behind):
        return
    mine, theirs = _by_user(story.mine, lines.op), _by_user(story.theirs, lines.their_op)
    story = structs.replace(story, mine=mine, theirs=theirs)
    if behind or lines.how is Apart.CALLED_ALONE:
        story = structs.replace(story, how="extra", again=False)
    elif lines.how in (Apart.AHEAD, Apart.PAST) and not story.again:
        story = structs.replace(story, how="skipped")
    finding.story = story


def _take_condition(finding: Finding, other: Finding) -> None:
    """Of one call that differs from the others': that the program makes it under a condition which holds
    for this rank alone, as its line shows, says more than which call it differs from.
    """
    lines, story = other.story, finding.story
    if not isinstance(lines, InOther) or lines.how is not Apart.CALLED_ALONE:
        return
    one_call = isinstance(story, Disagrees) or (
        isinstance(story, Diverged) and story.how in ("skipped", "other")
    )
    if one_call and other.ranks == finding.ranks:
        finding.kind, finding.story = other.kind, lines


def _by_user(recorded: Op | None, seen: Op | None) -> Op | None:
    """The recorded call with the user's line that a stack shows of it, where it has a library's."""
    if recorded is None or seen is None or seen.frame is None or not is_users(seen.frame):
        return recorded
    file = recorded.site.rpartition(" (")[2].rpartition(":")[0]
    if recorded.name not in seen.name or is_users(Frame("", file, 0)):
        return recorded
    return structs.replace(recorded, site=str(seen.frame))


def _counted(known: Story, fact: Story) -> Story:
    """The story of a fact, with the operation as records count it."""
    if isinstance(fact, ShutDown) and isinstance(known, NeverReached) and known.op is not None:
        return ShutDown(known.op)
    return fact


def _take_doubt(finding: Finding, other: Finding) -> None:
    """Of a fact that leaves open whether the rank is only slow."""
    doubts = [against for against in other.against if against.kind == "slow"]
    if doubts and not any(against.kind == "slow" for against in finding.against):
        finding.against += doubts
        finding.confidence = min(finding.confidence, other.confidence)


def _support(case: Case, finding: Finding, other: Finding) -> None:
    """Take over what another pass knows of the same rank: a fact's kind and story, its frame, its
    evidence.
    """
    covered = set(other.ranks) >= set(finding.ranks)
    if covered:
        _decide_by_lines(case, finding, other)
        _take_condition(finding, other)
    fact = other.kind in _FACTS or isinstance(other.story, ShutDown)
    if fact and covered and finding.kind in {other.kind, *_LESS_THAN_A_FACT}:
        finding.kind, finding.story = other.kind, _counted(finding.story, other.story)
        _take_doubt(finding, other)
    if other.frame is not None:
        finding.frame, finding.doing = other.frame, other.doing
    finding.where.frame = other.where.frame or finding.where.frame
    finding.nodes = finding.nodes or other.nodes
    finding.add_clues(other.clues)
    # A stack shows where a rank is, not for how long that is usual: it does not take the doubt
    # away.
    if other.kind == finding.kind and not any(a.kind == "slow" for a in finding.against):
        finding.confidence = agreed(finding.confidence, other.confidence)
