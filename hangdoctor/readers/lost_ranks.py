"""Ranks that were started on this host and are no more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import psutil

from ..model.capture import RankCapture
from ..text.ranges import MAX_RANKS, number_in
from . import box_folders, proc, reaped, unnumbered
from .discover import Found, Job

_MOST_ON_HOST = 4096  # ranks: a host that is said to have more has a wrong variable
_APART_S = 5.0  # a launcher starts one rank after another in less
_LOOPBACK = {"127.0.0.1", "localhost", "::1", "0.0.0.0"}


def lost_ranks(job: Job, node: str) -> list[RankCapture]:
    """Ranks that were started on this host and are no more: zombies of the same launcher, or gaps
    among the local ranks.
    """
    by_box = _by_boxes(job)
    gone = [rank for rank in absent(job) if rank not in by_box]
    if not gone and not by_box:
        return []
    matched = match(gone, job.ranks, _zombies({f.ppid for f in job.ranks if f.ppid > 1}))
    world = max(f.world_size for f in job.ranks)
    matched |= by_box
    pids = [f.pid for f in job.ranks]
    waited_for = 0 if reaped.by_torchrun(job.ranks) and reaped.ended_well(pids) else None
    lost = []
    for rank in sorted({*gone, *by_box}):
        pid = matched.get(rank, 0)
        code = proc.exit_code(pid) if pid else waited_for
        lost.append(
            RankCapture(pid=pid, rank=rank, node=node, world_size=world, gone=True, exit_code=code)
        )
    return lost


def notes(lost: Sequence[RankCapture]) -> list[str]:
    """What shows how those ended that are not even a zombie."""
    waited_for = [rank.rank for rank in lost if rank.pid == 0 and rank.exit_code == 0]
    return [reaped.note(waited_for, "torchrun")] if waited_for else []


def _by_boxes(job: Job) -> dict[int, int]:
    """{rank: pid} of ranks that have ended and left a black box beside those of the living ones."""
    known = {f.rank for f in job.ranks}
    first = job.ranks[0]
    if len(known) >= first.world_size:
        return {}
    told = [(f.environ.get("HANGDOCTOR_DIR", ""), f.pid) for f in job.ranks]
    boxes = [box for folder, pid in told if (box := unnumbered.box_in(folder, pid)) is not None]
    ended = [box for box in box_folders.ended_beside(boxes) if box.state != "finished"]
    missing = set(range(first.world_size)) - known
    return {box.rank: box.pid for box in ended if box.rank in missing}


def match(
    gone: Sequence[int], ranks: Sequence[Found], zombies: Sequence[tuple[float, int]]
) -> dict[int, int]:
    """{rank: pid} of the ranks that are `gone`, by `zombies`: (started, pid) of each, oldest first.

    A zombie keeps no environment. Launchers start ranks in order, so those count that started
    between a rank's neighbours, as many as are missing there. A launcher that starts them in
    another order has as many zombies as ranks are missing, and they are taken in turn.
    """
    known = sorted((f.rank, f.started) for f in ranks)
    first, last = (-1, known[0][1] - _APART_S), (MAX_RANKS, known[-1][1] + _APART_S)
    matched: dict[int, int] = {}
    for (below, since), (above, until) in pairwise([first, *known, last]):
        between = [r for r in gone if below < r < above]
        pids = [pid for began, pid in zombies if since <= began <= until]
        if between and len(pids) == len(between):
            matched.update(zip(between, pids, strict=True))
    if not matched and len(zombies) == len(gone):
        return {rank: pid for rank, (_, pid) in zip(gone, zombies, strict=True)}
    return matched


def absent(job: Job) -> list[int]:
    """Numbers of the ranks that were started on this host, as far as that is known, and are no
    more.
    """
    return sorted(_expected(job.ranks) - {f.rank for f in job.ranks})


def _expected(ranks: list[Found]) -> set[int]:
    """The ranks that were started on this host, as far as the environments show."""
    expected: set[int] = set()
    go_round = _go_round(ranks)
    for found in ranks:
        expected.update(_started_with(found, go_round))
    expected.update(_between_siblings(ranks))
    if len(expected) > _MOST_ON_HOST:
        return set()
    world = max(f.world_size for f in ranks)
    return {r for r in expected if r < world} if world else expected


def _between_siblings(ranks: list[Found]) -> set[int]:
    """The ranks up to the last of those that one shell started, as its loop over RANK and LOCAL_RANK does: of two
    hosts they would not have one parent, and each host has a local rank 0.
    """
    loops: dict[tuple[int, int], list[int]] = {}
    for found in ranks:
        if "RANK" in found.environ and found.local_rank >= 0 and found.ppid > 1:
            loops.setdefault((found.ppid, found.rank - found.local_rank), []).append(found.rank)
    spans = [
        (max(first, 0) if len(some) > 1 else some[0], max(some))
        for (_, first), some in loops.items()
    ]
    return {r for low, high in spans if high - low < _MOST_ON_HOST for r in range(low, high + 1)}


def _go_round(ranks: list[Found]) -> bool:
    """Whether consecutive ranks are on different hosts: under torchrun never, under mpiexec they
    may be.
    """
    numbered = [f for f in ranks if f.local_rank >= 0 and "RANK" not in f.environ]
    return len({f.rank - f.local_rank for f in numbered}) > 1


def _started_with(found: Found, go_round: bool) -> Iterable[int]:
    """The ranks of this host by what one of them has in its environment."""
    by_launcher = "RANK" in found.environ
    own = found.environ.get("SLURM_GTIDS", "")
    if own and not by_launcher:
        numbers = [number_in(word) for word in own.split(",")]
        return [r for r in numbers if 0 <= r < MAX_RANKS]
    if found.local_world_size > 0 and found.local_rank >= 0:
        if go_round and not by_launcher:
            return ()
        first = found.rank - found.local_rank
        return range(first, first + min(found.local_world_size, _MOST_ON_HOST + 1))
    if found.environ.get("MASTER_ADDR") in _LOOPBACK:
        # No rank of another host can meet at a loopback address.
        return range(min(found.world_size, _MOST_ON_HOST + 1))
    return ()


def _zombies(parents: set[int]) -> list[tuple[float, int]]:
    """(started, pid) of the children that ended and were not waited for, oldest first."""
    found: list[tuple[float, int]] = []
    for process in psutil.process_iter():
        try:
            if process.ppid() in parents and process.status() == psutil.STATUS_ZOMBIE:
                found.append((process.create_time(), process.pid))
        except psutil.Error:
            continue
    return sorted(found)
