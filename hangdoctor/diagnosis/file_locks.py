"""Pass: ranks that wait for a file lock, and who holds it, by /proc/locks of their node.

Who waits for a lock is a victim: the cause is the rank that holds it, with what it does instead of
releasing it, or the process outside of the job that does. The last holder of a chain counts.
"""

from __future__ import annotations

from msgspec import Struct, structs

from ..model.capture import LockHolder
from . import findings as f
from . import outsiders
from .case import Case, finding_on, in_op, op_of, ranks_of, stack_clue
from .confidence import Ground, Less, Limit, sure
from .draft import Draft, ordered
from .findings import Clue, Finding
from .held_by import command_of, lock_file
from .view import RankView

STORIES = (f.HoldsLock, f.LockedBy, f.LockRing)


class LockedOut(Struct):
    """A rank that waits for the lock on `path`; `owner`: the rank that has it, itself or by a
    process that it started (`child`), None where no captured rank does.
    """

    view: RankView
    path: str
    holder: LockHolder
    owner: RankView | None = None
    child: int = 0


def run(case: Case, draft: Draft) -> None:
    """One finding for each process that holds the lock that ranks wait for."""
    locked = {found.view.rank: found for found in _locked_out(case)}
    if not locked:
        return
    ring = _in_rings(locked)
    draft.excused |= locked.keys() - ring
    owned = any(one.owner is not None for one in locked.values())
    if owned:
        draft.excused |= {c.rank for c in case.capture.ranks() if c.ops is not None and c.ops.freed}
    found = [_ring(case, [locked[rank] for rank in sorted(ring)])] if ring else []
    found += _by_ranks(case, draft, list(locked.values()))
    found += _by_others(case, [one for one in locked.values() if one.owner is None])
    draft.facts += found
    draft.by_stacks = ordered(draft.by_stacks + found)


def _locked_out(case: Case) -> list[LockedOut]:
    owners: dict[tuple[str, int], tuple[RankView, int]] = {}
    for view in case.views:
        owners[view.node, view.pid] = view, 0
    for view in case.views:
        for process in view.capture.children:
            owners.setdefault((view.node, process.pid), (view, process.pid))
    found: list[LockedOut] = []
    for view in case.alive:
        path, holder = lock_file(view), view.capture.lock
        if holder is None or not holder.pid or view.stopped or (view.got_on and not holder.path):
            continue
        if holder.child and (view.got_on or view.waits):
            continue  # what its child does is nothing that it waits for
        path = path or holder.path
        if not path and not case.capture.by_heartbeat:  # the box has the process, and no path
            continue
        owner, child = owners.get((view.node, holder.pid), (None, 0))
        if owner is not view:  # its own lock, or that of its own child, is its own fault
            found.append(LockedOut(view, path, holder, owner, child=child))
    return found


def _in_rings(locked: dict[int, LockedOut]) -> set[int]:
    """Ranks that wait, over others, for a lock that they hold themselves."""
    found: set[int] = set()
    for rank in locked:
        seen: list[int] = []
        at = rank
        while at in locked and at not in seen:
            seen.append(at)
            owner = locked[at].owner
            at = owner.rank if owner is not None else -1
        if at == rank:
            found.add(rank)
    return found


def _by_ranks(case: Case, draft: Draft, locked: list[LockedOut]) -> list[Finding]:
    out = {one.view.rank for one in locked}
    together: dict[tuple[int, str], list[LockedOut]] = {}
    for one in locked:
        if one.owner is not None and one.owner.rank not in out:
            together.setdefault((one.owner.rank, one.path), []).append(one)
    named = {rank: c for c in draft.facts for rank in c.ranks}
    found: list[Finding] = []
    for (rank, _), held in together.items():
        known = named.get(rank)
        if known is not None:  # it is stopped or dead: that says why it keeps the lock
            known.clues.append(_clue(held))
            continue
        named[rank] = _holder(case, out, held)
        found.append(named[rank])
    return found


def _holder(case: Case, out: set[int], held: list[LockedOut]) -> Finding:
    owner = held[0].owner
    assert owner is not None
    op = op_of([owner]) if owner.waits else None
    story = f.HoldsLock(held[0].path, _waiters(held), held[0].child, op)
    waiting = [v for v in case.waiting if v.rank not in out and v is not owner]
    doubts: list[Limit | Less] = [Limit.ONE_SAMPLE] if owner.motion == "unknown" else []
    ground = Ground.OUTSIDE_MOVING if owner.got_on else Ground.HOLDS_LOCK
    confidence = sure(ground, *doubts)
    if owner.waits:
        finding = finding_on(case, "order", [owner], story, confidence=confidence)
        finding.clues = [in_op([owner])]
    else:
        finding = outsiders.finding_outside(case, [owner], waiting)
        finding.story, finding.confidence = story, confidence
    finding.clues.insert(0, _clue(held))
    return finding


def _by_others(case: Case, locked: list[LockedOut]) -> list[Finding]:
    together: dict[tuple[str, int, str], list[LockedOut]] = {}
    for one in locked:
        together.setdefault((one.view.node, one.holder.pid, one.path), []).append(one)
    found: list[Finding] = []
    for held in together.values():
        holder = held[0].holder
        story = f.LockedBy(held[0].path, holder.pid, command_of(holder.argv, holder.name))
        found.append(_finding(case, held, story, sure(Ground.HOLDS_LOCK)))
    return found


def _ring(case: Case, held: list[LockedOut]) -> Finding:
    paths = tuple(sorted({one.path for one in held}))
    finding = _finding(case, held, f.LockRing(paths), sure(Ground.LOCK_RING))
    finding.kind = "order"
    return finding


def _finding(case: Case, held: list[LockedOut], story: f.Story, confidence: float) -> Finding:
    views = [one.view for one in held]
    finding = finding_on(case, "not_entered", views, story, confidence=confidence)
    by_lock: dict[tuple[str, int], list[LockedOut]] = {}
    for one in held:
        by_lock.setdefault((one.path, one.holder.pid), []).append(one)
    finding.clues = [_clue(same) for same in by_lock.values()]
    finding.clues.append(stack_clue(views))
    return finding


def _waiters(held: list[LockedOut]) -> tuple[int, ...]:
    return ranks_of(one.view for one in held)


def _clue(held: list[LockedOut]) -> Clue:
    return Clue("proc", _waiters(held), f.LockWait(held[0].path, held[0].holder.pid))


def absorb(draft: Draft, by_ops: list[Finding]) -> list[Finding]:
    """The findings of the operations without the ranks that wait for a lock; what they know of the
    operation goes to the finding on its holder.
    """
    locks = [c for c in draft.facts if isinstance(c.story, STORIES)]
    explained = draft.excused | {rank for c in locks for rank in c.ranks}
    kept: list[Finding] = []
    for finding in by_ops:
        rest = [rank for rank in finding.ranks if rank not in explained]
        if not rest and finding.ranks:
            _take_over(locks, finding)
            continue
        if set(finding.ranks) & draft.excused:
            finding.ranks = rest
        kept.append(finding)
    return kept


def _take_over(locks: list[Finding], of_ops: Finding) -> None:
    concerned = set(of_ops.ranks)
    for finding in locks:
        story = finding.story
        waiters = story.waiters if isinstance(story, f.HoldsLock) else ()
        if not concerned & {*finding.ranks, *waiters}:
            continue
        finding.waiters = of_ops.waiters or finding.waiters
        finding.where = structs.replace(of_ops.where, frame=finding.where.frame)
        finding.add_clues([clue for clue in of_ops.clues if clue.source == "ops"])
