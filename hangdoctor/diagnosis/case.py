"""What every pass reads: the views of all ranks, and who is not among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct, structs

from ..model.capture import Frame, JobCapture, SilentNode
from ..model.diagnosis import Kind, Where
from . import (
    compiled_calls,
    device_waits,
    driven,
    endless_loops,
    gil,
    polled_handles,
    shared_barriers,
    side_threads,
    training_threads,
)
from .findings import At, Clue, Finding, Home, InOp, Op, Story, Waiters
from .position import group_by_operation, iteration
from .view import RankView, view_job

_FRAMES = 4  # of a stack, in evidence


class Case(Struct):
    """One job under diagnosis."""

    capture: JobCapture
    views: list[RankView]
    world_size: int
    silent: dict[int, str]  # rank -> why its node said nothing
    absent: list[int]  # ranks that were not captured, and no silent node accounts for them
    alive: list[RankView]  # ranks with a living process
    gone: list[RankView]  # ranks whose process has ended
    waiting: list[RankView]  # in a communication without getting on, and free to run
    unread: list[RankView]  # living, and there was no time for their stacks: they may be anywhere

    @property
    def unseen(self) -> list[int]:
        """Ranks without any information."""
        return sorted({*self.absent, *self.silent})

    def held_up(self, but: Iterable[int] = ()) -> list[RankView]:
        """The largest group of ranks that wait in one operation, without `but`."""
        left_out = set(but)
        groups = group_by_operation([v for v in self.waiting if v.rank not in left_out])
        return groups[0] if groups else []

    def homes(self, ranks: Iterable[int]) -> list[Home]:
        """Where these ranks run, as far as they were captured."""
        wanted = set(ranks)
        return [Home(v.rank, v.node, v.pid, v.capture.gpu) for v in self.views if v.rank in wanted]


def open_case(capture: JobCapture) -> Case:
    """The capture as the passes read it."""
    views = view_job(capture)
    training_threads.settle(views)
    side_threads.settle(views)
    driven.settle(views)
    polled_handles.settle(views)
    device_waits.settle(capture, views)
    compiled_calls.settle(views)
    shared_barriers.settle(views)
    gil.settle(views)
    endless_loops.settle(views)
    seen = {v.rank for v in views}
    sizes = [v.capture.world_size for v in views]
    world = max(capture.world_size, *sizes, max(seen, default=-1) + 1)
    silent = _silent_ranks(capture, seen)
    absent = (
        [] if _not_looked_for(capture, views) else sorted(set(range(world)) - seen - silent.keys())
    )
    alive = [v for v in views if not v.gone]
    return Case(
        capture,
        views,
        world,
        silent,
        absent=absent,
        alive=alive,
        gone=[v for v in views if v.gone],
        waiting=[v for v in alive if v.waits and not v.stopped],
        unread=[v for v in alive if v.unread],
    )


def _not_looked_for(capture: JobCapture, views: Sequence[RankView]) -> bool:
    """Whether no process was looked for: a log, or an answer of RAS, is all there is."""
    answered = capture.origin == "files" and any(n.ras is not None for n in capture.nodes)
    return bool(capture.names) or (not views and (capture.logs is not None or answered))


def _silent_ranks(capture: JobCapture, seen: set[int]) -> dict[int, str]:
    """Ranks of nodes that said nothing, unless another node has them, and why."""
    silent: dict[int, str] = {}
    for node in capture.silent:
        unseen = [rank for rank in node.ranks if rank not in seen]
        silent |= dict.fromkeys(unseen, _why_silent(node))
    return silent


def nodes_of(views: Iterable[RankView]) -> list[str]:
    """Nodes that these ranks run on."""
    return sorted({v.node for v in views if v.node})


def ranks_of(views: Iterable[RankView]) -> tuple[int, ...]:
    """Numbers of these ranks."""
    return tuple(v.rank for v in views)


def op_of(group: Sequence[RankView]) -> Op:
    """The operation that ranks are in, as the stack of the first one shows it."""
    place = group[0].place
    op = Op(place.op, frame=place.frame, caller=place.caller)
    peers = {v.place.peer for v in group}
    if place.kind != "p2p" or min(peers) < 0:
        return op
    if len(peers) == 1:
        return structs.replace(op, peer=place.peer)
    return structs.replace(op, peers=tuple(sorted(peers)), beside=_beside(group))


def _beside(group: Sequence[RankView]) -> Literal["before", "after", ""]:
    """Where the peer of each is its neighbour by number; of a closed ring it is not that of one."""
    steps = {v.place.peer - v.rank for v in group}
    if steps == {-1}:
        return "before"
    return "after" if steps == {1} else ""


def sides_of(views: Sequence[RankView]) -> tuple[tuple[tuple[int, ...], Op], ...]:
    """The ranks in each operation, as a sentence names it, the most first; () where all are in one."""
    found: dict[str, list[RankView]] = {}
    for view in views:
        found.setdefault(f"{view.place.op} {view.place.frame}", []).append(view)
    if len(found) < 2:
        return ()
    most_first = sorted(found.values(), key=lambda side: (-len(side), side[0].rank))
    return tuple((ranks_of(side), op_of(side)) for side in most_first)


def frame_of(view: RankView) -> Frame | None:
    """The frame that says most about where a rank is."""
    return view.place.frame or (view.path[-1] if view.path else None)


def in_op(views: Sequence[RankView]) -> Clue:
    """The evidence that these ranks are in one operation."""
    return Clue("stack", ranks_of(views), InOp(op_of(views)))


def stack_clue(views: Sequence[RankView], code: str = "") -> Clue:
    """The innermost frames of the first of the ranks, and the user's own where it is further out."""
    view = views[0]
    frames = tuple(reversed(view.path[-_FRAMES:]))
    own = view.place.frame
    return Clue("stack", ranks_of(views), At(frames, code, own if own not in frames else None))


def where_held(case: Case, group: Sequence[RankView], culprit: RankView | None) -> Where:
    """The operation that does not finish, and the culprit's own frame."""
    where = Where()
    if group:
        place = group[0].place
        where.op, where.group = place.op or None, place.group or None
        if place.group == "world" and case.world_size > 0:
            where.group_ranks = list(range(case.world_size))
        where.iteration = iteration(group[0].path)
    if culprit is not None:
        frame = frame_of(culprit)
        where.frame = str(frame) if frame is not None else None
        own = iteration(culprit.path)
        where.iteration = own if own is not None else where.iteration
    return where


def waiters(case: Case, culprits: Iterable[int]) -> Waiters | None:
    """Who waits while the culprits do not come; None where no rank does."""
    blamed = set(culprits)
    groups = group_by_operation([v for v in case.waiting if v.rank not in blamed])
    if not groups:
        return None
    rest = tuple(v.rank for g in groups[1:] for v in g)
    return Waiters(ranks_of(groups[0]), op_of(groups[0]), elsewhere=rest)


def finding_on(
    case: Case, kind: Kind, views: Sequence[RankView], story: Story, confidence: float
) -> Finding:
    """A finding on ranks that were captured, with where they are and who waits for them."""
    ranks = [v.rank for v in views]
    return Finding(
        kind=kind,
        ranks=ranks,
        story=story,
        confidence=confidence,
        nodes=nodes_of(views),
        where=where_held(case, case.held_up(ranks), views[0]),
        frame=frame_of(views[0]),
        waiters=waiters(case, ranks),
        children=any(v.capture.children for v in views),
    )


def _why_silent(silent: SilentNode) -> str:
    """Why its ranks are missing; dumps come from no node that is known."""
    return f"node {silent.node} did not report ({silent.why})" if silent.node else silent.why
