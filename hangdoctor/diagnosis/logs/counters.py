"""Who is behind or runs something else, by the counters of the group that timed out.

Only ranks of one group are compared, and only with the operation that its waiters timed out in:
counters of another group say nothing. A group is known by its name in the log; where groups with
one name are several, the distance of a rank's two numbers tells them apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from msgspec import Struct

from ...model.log_facts import AnyFact, Counted, GlooTimeout, PythonError, TimedOut, Told
from ...stacks.place_search import find_place
from ..confidence import Ground, sure
from ..findings import Finding, Op, Waiters
from ..findings.log_stories import AllWaited, DidNotTimeOut, FewerCalls, OtherCall
from .candidate import First
from .scene import Scene, op_name, op_of, ranks_named

_UNSET = 1 << 31  # a counter that was never written, in 32 bits or 64
_UNKNOWN_OP = "OPERATION"
_ROOTED = {"BROADCAST", "_BROADCAST_OOP", "REDUCE", "GATHER", "SCATTER", "SEND", "RECV"}
_OF_WAITS = ("gloo_timeout", "peer_closed")  # rules
_MANY = 8  # ranks; of so many two may be the ones that did not come
_NOT_BY_CHANCE = 256  # a number so high is that of two groups by chance only
_ENOUGH = 3  # waiters, before one who did not wait is named
# Sizes that may differ between ranks by right; of the others, numbers in and out are the same.
_UNEVEN = ("ALLTOALL", "SEND", "RECV", "COALESCED", "GATHER", "UNKNOWN")
_UNEVEN_AS_A_WHOLE = ("SCATTER", "GATHER")


class Group(Struct):
    """One group of the job, as far as its members speak in the logs."""

    name: str
    waits: dict[int, TimedOut]  # by rank: the first that timed out
    counts: dict[int, Counted]  # by rank: the latest

    @property
    def seq(self) -> int:
        """The number that most waiters timed out at."""
        common = Counter(w.seq for w in self.waits.values() if w.seq >= 0).most_common(1)
        return common[0][0] if common else -1

    @property
    def began(self) -> float:
        """When the first of its waits began; 0 where no stamp says it."""
        return min((w.at - w.ran_ms / 1000 for w in self.waits.values() if w.at), default=0.0)


def groups(scene: Scene) -> list[Group]:
    """Groups in which somebody timed out, the earliest wait first."""
    names = _names(scene)
    found: dict[str, Group] = {}
    for wait in scene.of(TimedOut) or told_by_themselves(scene):
        if wait.rank < 0:
            continue
        key = names.get(id(wait), wait.group)
        group = found.setdefault(key, Group(key, {}, {}))
        known = group.waits.get(wait.rank)
        if known is None or wait.seq < known.seq:
            group.waits[wait.rank] = wait
    for count in scene.of(Counted):
        key = names.get(id(count), count.group)
        if key in found and count.rank >= 0:
            found[key].counts[count.rank] = count
    return sorted(found.values(), key=lambda g: (g.began, g.name))


def told_by_themselves(scene: Scene) -> list[TimedOut]:
    """The waits of ranks that only said to the others that they had timed out, with their counters."""
    told = {(f.file, f.line) for f in scene.of(Told) if f.by == -1}
    counts = [
        f for f in scene.of(Counted) if (f.file, f.line) in told and 0 <= f.completed < _UNSET
    ]
    return [
        TimedOut(
            rank=f.rank,
            group=f.group,
            group_rank=f.group_rank,
            seq=f.completed + 1,
            op=_UNKNOWN_OP,
            at=f.at,
            file=f.file,
            line=f.line,
            says=f.says,
        )
        for f in counts
        if f.enqueued > f.completed
    ]


def _names(scene: Scene) -> dict[int, str]:
    """Names of groups that are several under one: by the difference of the rank's two numbers."""
    facts = [f for f in scene.facts if isinstance(f, TimedOut | Counted) and f.rank >= 0]
    by_name: dict[str, list[TimedOut | Counted]] = defaultdict(list)
    for fact in facts:
        by_name[fact.group].append(fact)
    names: dict[int, str] = {}
    for name, members in by_name.items():
        if _one_group(members):
            continue
        for fact in members:
            names[id(fact)] = f"{name}@{fact.rank - fact.group_rank}"
    for wait in scene.of(TimedOut):
        if not wait.group and id(wait) not in names:
            names[id(wait)] = _name_of_the_same(scene, wait)
    return names


def _name_of_the_same(scene: Scene, unnamed: TimedOut) -> str:
    """The group of the one operation that is the same, where other ranks' lines name one: the line that
    names it may be missing.
    """
    alike = [w for w in scene.of(TimedOut) if w.group and w.rank != unnamed.rank]
    same = {w.group for w in alike if _at(w) == _at(unnamed)}
    if not same and unnamed.seq >= _NOT_BY_CHANCE:  # another call at that number, then
        same = {w.group for w in alike if w.seq == unnamed.seq}
    return same.pop() if len(same) == 1 else ""


def _at(wait: TimedOut) -> tuple[str, int, int, int]:
    return wait.op, wait.seq, wait.numel_in, wait.numel_out


def _one_group(members: Iterable[TimedOut | Counted]) -> bool:
    """Whether no two ranks have the same number in it."""
    rank_of: dict[int, int] = {}
    numbered = [fact for fact in members if fact.group_rank >= 0]
    return all(rank_of.setdefault(f.group_rank, f.rank) == f.rank for f in numbered)


def judged(scene: Scene) -> First | None:
    """The first group that shows who differs; a verdict on all of its ranks where none does."""
    found = groups(scene)
    for group in found:
        first = (
            _mismatch(scene, group)
            or _apart(scene, group)
            or _behind(scene, group)
            or _outside(scene, group)
        )
        if first is not None:
            return first
    return None


def _mismatch(scene: Scene, group: Group) -> First | None:
    """At one number, another operation or size than most."""
    at = {r: w for r, w in group.waits.items() if w.seq == group.seq and w.op}
    signed = {r: _signature(w) for r, w in at.items()}
    kinds = Counter(signed.values()).most_common()
    if len(kinds) < 2:
        return None
    (usual, most), (_, second) = kinds[0], kinds[1]
    odd = sorted(r for r, s in signed.items() if s != usual)
    pair = most == second
    ranks = sorted(signed) if pair else odd
    mine, theirs = at[odd[0]], next(w for r, w in at.items() if signed[r] == usual)
    story = OtherCall(
        Op(op_name(mine.op), mine.seq),
        Op(op_name(theirs.op), theirs.seq),
        _size(mine),
        _size(theirs),
        pair=pair,
    )
    ground = Ground.LOG_MISMATCH_PAIR if pair else Ground.LOG_MISMATCH
    return _first(scene, group, "mismatch", ranks, story=story, ground=ground)


def _signature(wait: TimedOut) -> tuple[str, int, int]:
    if _may_be_uneven(wait.op):
        return (wait.op, -1, -1)
    return (wait.op, wait.numel_in, wait.numel_out)


def _may_be_uneven(op: str) -> bool:
    """Whether sizes of this operation may differ between ranks by right."""
    if op in _UNEVEN_AS_A_WHOLE:
        return True
    return not op.startswith(("ALLGATHER", "_ALLGATHER")) and any(kind in op for kind in _UNEVEN)


def _size(wait: TimedOut) -> str:
    if wait.numel_in < 0:
        return ""
    one = wait.numel_in == wait.numel_out or wait.numel_out < 0
    return f"{wait.numel_in} elements" if one else f"{wait.numel_in} to {wait.numel_out} elements"


def _behind(scene: Scene, group: Group) -> First | None:
    """Ranks whose last enqueued operation lies before the one that others wait in."""
    if group.seq < 0:
        return None
    known = {r: c.enqueued for r, c in group.counts.items() if -1 <= c.enqueued < _UNSET}
    behind = [r for r in sorted(known) if known[r] < group.seq and _waits_earlier(group, r)]
    others = {*known, *group.waits} - set(behind)
    if not behind or not others or len(behind) > len(others):
        return None
    op = op_of(w for w in group.waits.values() if w.rank not in behind)
    story = FewerCalls(op, max(known[r] for r in behind))
    return _first(scene, group, "not_entered", behind, story=story, ground=Ground.LOG_COUNTERS)


def _waits_earlier(group: Group, rank: int) -> bool:
    """Whether it timed out in an earlier operation than most, or in none."""
    wait = group.waits.get(rank)
    return wait is None or 0 <= wait.seq < group.seq


def _apart(scene: Scene, group: Group) -> First | None:
    """Two ranks of one group that wait in different operations: each has passed the other's, or
    never comes to it.
    """
    if len(group.waits) != 2:
        return None
    (one, mine), (other, theirs) = sorted(group.waits.items(), key=lambda item: item[1].seq)
    rooted = {mine.op, theirs.op} & {*_ROOTED, ""}  # in these one side may run ahead
    if rooted or mine.seq < 0 or mine.seq == theirs.seq or mine.op == theirs.op:
        return None
    story = OtherCall(
        Op(op_name(mine.op), mine.seq),
        Op(op_name(theirs.op), theirs.seq),
        _size(mine),
        _size(theirs),
        pair=True,
    )
    return _first(scene, group, "order", sorted((one, other)), story=story, ground=Ground.LOG_APART)


def _outside(scene: Scene, group: Group) -> First | None:
    """Ranks that did not time out while all others of a job of known size did."""
    if not scene.whole or not _spans_job(scene, group):
        return None
    idle = [r for r in scene.everyone if r not in group.waits]
    few = max(1, len(scene.everyone) // _MANY * 2)
    enough = min(_ENOUGH, max(2, len(scene.everyone) - 1))
    if not idle or len(idle) > few or len(group.waits) < enough:
        return None
    if any(_has_enqueued(group, r) for r in idle):
        return None
    heard = all(_was_heard(scene, r) for r in idle)
    missing = len(idle) > 1 or any(file.cut for file in scene.logs.files)
    if not heard and missing:
        return None  # more likely their logs are, or their lines
    story = DidNotTimeOut(op_of(group.waits.values()), heard)
    ground = Ground.LOG_NOT_WAITING if heard else Ground.LOG_NEVER_HEARD
    return _first(scene, group, "not_entered", idle, story=story, ground=ground)


def _has_enqueued(group: Group, rank: int) -> bool:
    """Whether its counters reach the operation that the others wait in."""
    return rank in group.counts and group.counts[rank].enqueued >= group.seq >= 0


def _was_heard(scene: Scene, rank: int) -> bool:
    return rank in scene.logs.heard or any(f.rank == rank for f in scene.of(Told))


def _spans_job(scene: Scene, group: Group) -> bool:
    """Whether a group may be the whole job: its name says so, or its numbers are the job's."""
    of_all = any(w.group_size == scene.logs.world_size for w in group.waits.values())
    if group.name and not group.name.startswith("0") and not of_all:
        return False
    return all(w.group_rank in (-1, w.rank) for w in group.waits.values())


def gloo(scene: Scene) -> First | None:
    """Ranks that neither waited in gloo until the limit nor lost a connection."""
    waits = ranks_named(scene.of(GlooTimeout))
    victims = {f.rank for f in scene.victims()}
    idle = sorted(set(scene.everyone) - victims.union(waits))
    # Of several, the launcher may have ended some before their own limit; they had not lost a
    # connection yet.
    if len(idle) != 1 or not waits or not _all_there(scene) or not _in_one_place(scene):
        return None
    frame = next((f.frame for f in scene.of(PythonError) if f.rank in waits and f.frame), None)
    op = Op("a collective", frame=frame)
    story = DidNotTimeOut(op, heard=True)
    limit = max(f.limit_ms for f in scene.of(GlooTimeout)) / 1000
    finding = Finding(
        kind="not_entered",
        ranks=idle,
        story=story,
        confidence=sure(Ground.LOG_NOT_WAITING),
        nodes=scene.nodes(idle),
        waiters=Waiters(tuple(waits), op, limit),
    )
    return First(finding, list(scene.of(GlooTimeout)), True)


def _all_there(scene: Scene) -> bool:
    """Whether no rank is without a line: where the size was not printed, each from 0 on has some."""
    from_zero = scene.everyone == list(range(len(scene.everyone)))
    return scene.whole or (from_zero and len(scene.everyone) > 2)


def _in_one_place(scene: Scene) -> bool:
    """Whether all errors that ended waits met their ranks at one call: ranks that waited elsewhere
    may have kept one of these, and one that the launcher ended may only have begun to wait later.
    """
    ended = [e for e in scene.of(PythonError) if e.rule in _OF_WAITS and e.frames]
    places = [find_place(e.frames, blocked=True) for e in ended]
    return len({(place.op, place.at) for place in places}) <= 1


def everyone_waits(scene: Scene) -> First | None:
    """All ranks of a job of known size in one operation, with equal counters: that names none of
    them.
    """
    for group in groups(scene):
        whole = scene.whole and _spans_job(scene, group)
        if not whole or sorted(group.waits) != scene.everyone or len(group.waits) < 2:
            continue
        signatures = {(w.seq, *_signature(w)) for w in group.waits.values()}
        counters = {(c.enqueued, c.completed) for c in group.counts.values()}
        if len(signatures) == 1 and len(counters) <= 1:
            ranks = tuple(sorted(group.waits))
            story = AllWaited(op_of(group.waits.values()), ranks)
            found = _first(
                scene, group, "in_communication", [], story=story, ground=Ground.LOG_ALL_WAITED
            )
            found.finding.waiters = None
            return found
    return None


def _first(
    scene: Scene, group: Group, kind: str, ranks: list[int], story: object, ground: Ground
) -> First:
    op = op_of(w for w in group.waits.values() if w.rank not in ranks or kind == "in_communication")
    others = tuple(sorted(r for r in group.waits if r not in ranks))
    seconds = max((w.ran_ms / 1000 for w in group.waits.values()), default=0.0)
    finding = Finding(
        kind=kind,  # type: ignore[arg-type]
        ranks=ranks,
        story=story,  # type: ignore[arg-type]
        confidence=sure(ground),
        nodes=scene.nodes(ranks),
        waiters=Waiters(others, op, seconds) if others else None,
    )
    finding.where.op, finding.where.seq = op.name, op.seq if op.seq >= 0 else None
    finding.where.group = group.name.partition("@")[0] or None
    facts: list[AnyFact] = [group.counts[r] for r in ranks if r in group.counts]
    facts += [w for w in group.waits.values()]
    return First(finding, facts, bool(ranks))
