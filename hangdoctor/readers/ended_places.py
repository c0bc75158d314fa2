"""Where the main threads of a job's ranks were when the first of them ended, or are, by their boxes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..model.capture import Frame, JobCapture, LockHolder, RankCapture
from ..model.pauses import first_end
from ..probe import format as fmt
from ..stacks.place_search import find_place
from ..stacks.user_code import is_users
from . import box_stacks, recorder_beside
from .blackbox import Contents
from .box_header import BlackBox
from .box_place import Company, samples_before_limit, samples_of

_FRESH_S = 2.5  # between a sign of work and the end
_SEEN_S = 12.0  # between its stack, of every eighth heartbeat, and the end


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
    for rank in uncounted:
        rank.has_jax = by_rank[rank.rank].box.backend == fmt.JAX
    if any(rank.samples for rank in uncounted):
        _add_to_all(uncounted, by_rank, until, Company.ONE_STUCK)
    elif uncounted:
        _add_to_all(uncounted, by_rank, until, Company.ALL_IN_CALLS)
        found = [bool(rank.samples) for rank in uncounted]
    # That several of JAX's wait at one line of a compiled function is for the diagnosis to see.
    if any(_is_in_call(rank) or (rank.has_jax and rank.samples) for rank in uncounted):
        _mark_at_work([r for r in uncounted if not r.samples], by_rank, until)
    capture.by_heartbeat = capture.by_heartbeat or any(found)
    idle = {r.rank: Path(by_rank[r.rank].box.path) for r in capture.ranks() if r.samples}
    if capture.by_heartbeat and not any(rank.recorded for rank in capture.ranks()):
        recorder_beside.attach_kept(capture.ranks(), idle)
        capture.recorded_beside = any(rank.recorded for rank in capture.ranks())


def _add_to_all(
    ranks: Sequence[RankCapture], by_rank: dict[int, Contents], until: float, company: Company
) -> None:
    """Those of the ranks beside one that is stuck, or where all stand in calls that communicate, or asleep
    beside such; of all or of none: who still computes may be what the others wait for.
    """
    rest = [rank for rank in ranks if not rank.samples]
    added = [_add(rank, by_rank[rank.rank], until, company) for rank in rest]
    in_calls = company is not Company.ALL_IN_CALLS or _all_stand(rest, by_rank)
    for rank in rest if not all(added) or not in_calls else ():
        rank.samples, rank.lock = [], None


def _all_stand(ranks: Sequence[RankCapture], by_rank: dict[int, Contents]) -> bool:
    """Whether all are in calls that communicate, or some are and all others sleep, as in a write to a
    pipe that nothing reads.
    """
    others = [rank for rank in ranks if not _is_in_call(rank)]
    places = [by_rank[rank.rank].place for rank in others]
    return len(others) < len(ranks) and all(p is not None and p.sleeps for p in places)


def _mark_at_work(ranks: Sequence[RankCapture], by_rank: dict[int, Contents], until: float) -> None:
    """Those of the ranks without a place whose signs of life and of work go to the end: native code that
    keeps the interpreter's lock stops both.
    """
    end = until or max(contents.box.heartbeat_s for contents in by_rank.values())
    for rank in ranks:
        box, got_on_s = by_rank[rank.rank].box, by_rank[rank.rank].ops.got_on_s
        rank.at_work = min(box.heartbeat_s, got_on_s) >= end - _FRESH_S
        if rank.at_work:
            rank.worked_in = _last_line(box, end)


def _last_line(box: BlackBox, end: float) -> Frame | None:
    """The innermost one of the user's in the stack beside the box; None of a stack from long
    before.
    """
    kept = box_stacks.stacks_beside(Path(box.path), box.created_s)
    if kept is None or not end - _SEEN_S <= kept.at_s <= end:
        return None
    frames = next((t.frames for t in kept.threads if t.tid == box.pid), [])
    return next((frame for frame in frames if is_users(frame)), None)


def _is_in_call(rank: RankCapture) -> bool:
    """Whether the line of its place is a call that communicates, by the program's source."""
    threads = [thread for sample in rank.samples[-1:] for thread in sample.threads]
    return any(find_place(t.frames, blocked=True).communicates for t in threads)


def _add(
    rank: RankCapture, contents: Contents, until: float, company: Company = Company.UNKNOWN
) -> bool:
    """Whether it has a place."""
    box, ops = contents.box, contents.ops
    rank.samples = samples_of(box, ops, contents.place, until, company)
    rank.samples = rank.samples or samples_before_limit(box, ops, contents.left, until)
    if rank.samples and box.lock_holder:
        rank.lock = LockHolder(box.lock_holder)
    return bool(rank.samples)
