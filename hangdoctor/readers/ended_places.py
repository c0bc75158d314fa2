"""Where the main threads of a job's ranks were when the first of them ended, or are, by their boxes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..model.capture import JobCapture, LockHolder, RankCapture
from ..model.pauses import first_end
from . import recorder_beside
from .blackbox import Contents
from .box_place import samples_before_limit, samples_of


def add_places(capture: JobCapture, boxes: Sequence[Contents], asked: float = 0.0) -> None:
    """Puts them into the ranks as their samples, where they have none; `asked`: when a signal asked a
    job that hung to end, 0 for none.
    """
    ended = first_end(capture.logs.facts if capture.logs is not None else [])
    until = min(ended, asked) if ended and asked else ended or asked
    by_rank = {contents.ops.rank: contents for contents in boxes}
    without = [r for r in capture.ranks() if r.rank in by_rank and not r.samples]
    found = [_add(rank, by_rank[rank.rank], until) for rank in without]
    uncounted = [r for r in without if by_rank[r.rank].box.uncounted]
    if any(rank.samples for rank in uncounted):
        _add_beside(uncounted, by_rank, until)
    capture.by_heartbeat = capture.by_heartbeat or any(found)
    idle = {r.rank: Path(by_rank[r.rank].box.path) for r in capture.ranks() if r.samples}
    if capture.by_heartbeat and not any(rank.recorded for rank in capture.ranks()):
        recorder_beside.attach_kept(capture.ranks(), idle)
        capture.recorded_beside = any(rank.recorded for rank in capture.ranks())


def _add_beside(ranks: Sequence[RankCapture], by_rank: dict[int, Contents], until: float) -> None:
    """Those of the ranks beside one that is stuck, if all have one then: who still computes may be what
    the others wait for.
    """
    rest = [rank for rank in ranks if not rank.samples]
    added = [_add(rank, by_rank[rank.rank], until, beside=True) for rank in rest]
    for rank in rest if not all(added) else ():
        rank.samples, rank.lock = [], None


def _add(rank: RankCapture, contents: Contents, until: float, beside: bool = False) -> bool:
    """Whether it has a place."""
    box, ops = contents.box, contents.ops
    rank.samples = samples_of(box, ops, contents.place, until, beside)
    rank.samples = rank.samples or samples_before_limit(box, ops, contents.left, until)
    if rank.samples and box.lock_holder:
        rank.lock = LockHolder(box.lock_holder)
    return bool(rank.samples)
