"""Ranks that the first one has started as its children, and that have not come to any connection: as
Lightning starts them, with LOCAL_RANK and no RANK. They may be importing still.
"""

from __future__ import annotations

import psutil
from msgspec.structs import replace

from ..text.plain import readable
from ..text.ranges import number_in
from .discover import Found, Job
from .rank_environment import is_launcher


def with_children(job: Job) -> Job:
    """The job of a rank 0 that is alone so far, with those of its children that are its ranks."""
    first = job.ranks[0]
    if len(job.ranks) > 1 or first.rank != 0 or first.world_size < 2:
        return job
    try:
        children = psutil.Process(first.pid).children()
    except psutil.Error:
        return job
    found = [rank for child in children if (rank := _rank(child, first)) is not None]
    if len({rank.rank for rank in found}) != len(found):
        return job  # a loader's workers inherit the number of their rank
    # On the first node, the local number is the rank's.
    return replace(job, ranks=[first, *sorted(found, key=lambda f: f.rank)])


def _rank(child: psutil.Process, first: Found) -> Found | None:
    """The child as a rank of the first one's node; None of any other process."""
    try:
        with child.oneshot():
            environ, argv = child.environ(), child.cmdline()
            number = number_in(environ.get("LOCAL_RANK", ""))
            world = number_in(environ.get("WORLD_SIZE", ""))
            if "RANK" in environ or not 0 < number < world == first.world_size:
                return None
            if is_launcher(argv):
                return None
            return Found(
                child.pid,
                first.pid,
                rank=number,
                world_size=world,
                local_rank=number,
                local_world_size=0,
                job=first.job,
                started=child.create_time(),
                user=first.user,
                argv=[readable(word) for word in argv],
                environ=environ,
            )
    except (psutil.Error, OSError):
        return None
