"""What every pass reads: the views of all ranks, and who is not among them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ..model import JobCapture, Where
from ..ranges import format_ranks
from .position import group_by_operation, iteration
from .view import RankView, view_job


class Case(Struct):
    """One job under diagnosis."""

    capture: JobCapture
    views: list[RankView]
    world_size: int
    silent: dict[int, str]  # rank -> why its node said nothing
    absent: list[int]  # ranks that nobody captured and no silent node accounts for

    @property
    def alive(self) -> list[RankView]:
        return [v for v in self.views if not v.gone]

    @property
    def gone(self) -> list[RankView]:
        return [v for v in self.views if v.gone]

    @property
    def waiting(self) -> list[RankView]:
        """Ranks in a communication that did not get on, and whose process is free to run."""
        return [v for v in self.alive if v.waits and not v.stopped]

    def held_up(self, but: Iterable[int] = ()) -> list[RankView]:
        """The largest group of ranks that wait in one operation, without `but`."""
        left_out = set(but)
        groups = group_by_operation([v for v in self.waiting if v.rank not in left_out])
        return groups[0] if groups else []


def open_case(capture: JobCapture) -> Case:
    views = view_job(capture)
    world = max([capture.world_size, *(v.capture.world_size for v in views)], default=0)
    world = max(world, 1 + max((v.rank for v in views), default=-1))
    silent = {rank: f"node {s.node} did not report: {s.why}" for s in capture.silent for rank in s.ranks}
    seen = {v.rank for v in views}
    for rank in seen:
        silent.pop(rank, None)
    absent = [r for r in range(world) if r not in seen and r not in silent]
    return Case(capture, views, world, silent, absent)


def names(ranks: Iterable[int], verb: str = "") -> str:
    """``Rank 3`` or ``Ranks 3,5-7``; "" for none."""
    ranks = sorted(set(ranks))
    return f"{'Rank' if len(ranks) == 1 else 'Ranks'} {format_ranks(ranks)}" if ranks else ""


def nodes_of(views: Iterable[RankView]) -> list[str]:
    return sorted({v.node for v in views if v.node})


def on_node(view: RankView) -> str:
    """`` on n2``, for a command to be run there; "" where no node is known."""
    return f" on {view.node}" if view.node else ""


def who(views: list[RankView]) -> str:
    """``Rank 3 (node n2, pid 812)``; of several ranks the nodes only."""
    if len(views) == 1:
        view = views[0]
        parts = [f"node {view.node}" if view.node else "", f"pid {view.pid}" if view.pid else ""]
        if view.capture.gpu:
            parts.append(f"GPU {view.capture.gpu}")
        inner = ", ".join(p for p in parts if p)
        return f"{names([view.rank])}{f' ({inner})' if inner else ''}"
    nodes = nodes_of(views)
    return names(v.rank for v in views) + (
        f" (node{'s' if len(nodes) > 1 else ''} {', '.join(nodes)})" if 0 < len(nodes) <= 4 else ""
    )


def short(frame: object) -> str:
    """A frame as ``function (file.py:12)`` with the last two parts of the path, as py-spy shows it."""
    text = str(frame)
    head, _, tail = text.rpartition(" (")
    path = tail.rstrip(")")
    parts = path.split("/")
    return f"{head} ({'/'.join(parts[-2:])})" if head else text


def operation_of(group: list[RankView]) -> str:
    """``all_reduce at train (train.py:31)``."""
    if not group:
        return "nothing"
    place = group[0].place
    return place.op + (f" at {short(place.frame)}" if place.frame is not None else "")


def where_held(case: Case, group: list[RankView], culprit: RankView | None) -> Where:
    """The operation that is held up, and the culprit's own frame."""
    where = Where()
    if group:
        place = group[0].place
        where.op, where.group = place.op or None, place.group or None
        where.group_ranks = list(range(case.world_size)) if place.group == "world" and case.world_size else None
        where.iteration = iteration(group[0].path)
    if culprit is not None:
        frame = culprit.place.frame or (culprit.path[-1] if culprit.path else None)
        where.frame = str(frame) if frame is not None else None
        own = iteration(culprit.path)
        where.iteration = own if own is not None else where.iteration
    return where


def waiters_sentence(case: Case, culprits: Iterable[int]) -> str:
    """``ranks 0-2,4-7 wait in all_reduce at ...``: what the culprit holds up; "" where nobody waits."""
    blamed = set(culprits)
    groups = group_by_operation([v for v in case.waiting if v.rank not in blamed])
    if not groups:
        return ""
    first = groups[0]
    text = f"{names(v.rank for v in first).lower()} wait{'s' if len(first) == 1 else ''} in {operation_of(first)}"
    rest = [v.rank for g in groups[1:] for v in g]
    return text + (f" ({format_ranks(rest)} in other operations)" if rest else "")
