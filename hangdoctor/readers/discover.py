"""Finding the ranks of this host: which processes they are, and which job each belongs to.

A rank is the topmost Python process, not a launcher, whose environment holds a rank. What it starts
inherits that environment: data-loader workers, compile workers and forked helpers are its children.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil
from msgspec import Struct

from ..errors import UsageError
from ..model.capture import RankCapture
from ..text import redaction
from ..text.plain import readable
from ..text.plural import count
from ..text.ranges import number_in
from ..time_limit import in_time
from . import other_ports, proc, unnumbered
from .jobnames import box_name, key_of, names_job
from .rank_environment import gpu_of, is_launcher, is_python, names_a_rank, rank_of

_WORDS = 200  # of a rank's command line
_SEARCHERS = 16  # a process whose memory is locked holds one of them for good


class Found(Struct):
    """One rank process and what its environment told."""

    pid: int
    ppid: int
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    job: str
    started: float
    user: str
    argv: list[str]
    environ: dict[str, str]


class Job(Struct):
    """The ranks of one job on this host."""

    key: str
    ranks: list[Found]
    started: float = 0.0
    notes: list[str] = []

    @property
    def names(self) -> list[str]:
        """Its key, and what its black boxes call it."""
        return [self.key, *{name for f in self.ranks[:1] if (name := box_name(f.environ))}]

    @property
    def user(self) -> str:
        """The owner of its processes."""
        return self.ranks[0].user if self.ranks else ""

    @property
    def began(self) -> float:
        """When this run began on this host, in seconds since the epoch: its launcher, which
        outlives ranks that it starts again, else its first rank.
        """
        launchers = [_launcher_started(pid) for pid in {f.ppid for f in self.ranks}]
        return min((at for at in launchers if at), default=self.started)

    def is_named(self, wanted: str) -> bool:
        """Whether `wanted` is one of its names or a part of one; "" names every job."""
        return names_job(wanted, *self.names)


def _launcher_started(pid: int) -> float:
    """When this process started, 0 where it is no launcher or gone."""
    try:
        process = psutil.Process(pid)
        return process.create_time() if is_launcher(process.cmdline()) else 0.0
    except (psutil.Error, OSError):
        return 0.0


def candidate(pid: int, uid: int | None) -> Found | None:
    """The process, where it is Python, no launcher, and its environment or its black box has a
    rank.
    """
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
        if not names_a_rank(raw) and unnumbered.FOLDER not in raw:
            return None
        process = psutil.Process(pid)
        with process.oneshot():
            if uid is not None and process.uids().real != uid:
                return None
            environ = process.environ()
            argv = process.cmdline()
            if is_launcher(argv) or not is_python(pid, argv):
                return None
            ppid = process.ppid()
            numbers, job = rank_of(environ), key_of(process, environ)
            if numbers is None:
                box = unnumbered.box_of(pid, raw)
                if box is None:
                    return None
                numbers, job = (box.rank, box.world_size, box.local_rank, 0), box.job
            return Found(
                pid,
                ppid,
                *numbers,
                job=job,
                started=process.create_time(),
                user=readable(process.username()),
                argv=[readable(word) for word in argv],
                environ=environ,
            )
    except (psutil.Error, OSError):
        return None  # it ended while we looked, or is not ours to read


def uid_of(user: str) -> int | None:
    """The numeric id of `user`; "" means this user, or everyone for root.

    Raises:
        UsageError: there is no such user.
    """
    import os
    import pwd

    if not user:
        return None if os.geteuid() == 0 else os.geteuid()
    try:
        return number_in(user) if number_in(user) >= 0 else pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        raise UsageError(f"there is no user '{user}' on this host") from None


def _topmost(candidates: list[Found]) -> list[Found]:
    """Leave out launchers that no list knows, and who descends from a candidate of the same job and
    rank: helpers.
    """
    by_pid = {c.pid: c for c in candidates}
    parents: dict[int, int] = {}  # what was read once, for all who have it above them
    for found in candidates:
        while (above := _above(found, by_pid, parents)) is not None and _gives_ranks(above, found):
            del by_pid[above.pid]
    ranks = list(by_pid.values())
    above_of = {c.pid: _above(c, by_pid, parents) for c in ranks}
    return [
        c for c in ranks if (a := above_of[c.pid]) is None or (a.rank, a.job) != (c.rank, c.job)
    ]


def _gives_ranks(above: Found, below: Found) -> bool:
    """Whether `above` started `below` as a rank: a scheduler numbered it itself, and it gave the
    other one its RANK.
    """
    given = "RANK" in below.environ and "RANK" not in above.environ and below.world_size > 1
    return given and (above.rank, above.world_size) != (below.rank, below.world_size)


def _above(found: Found, by_pid: dict[int, Found], parents: dict[int, int]) -> Found | None:
    """The nearest of the candidates that it descends from."""
    pid, steps = found.ppid, 0
    while pid > 1 and steps < 64:
        above = by_pid.get(pid)
        if above is not None:
            return above
        if pid not in parents:
            fields = proc.stat_fields(pid)
            parents[pid] = int(fields[1]) if len(fields) > 1 else 0
        pid, steps = parents[pid], steps + 1
    return None


# (process, id of the user who is meant): the rank that it is, or None
Read = Callable[[int, int | None], Found | None]


def find_jobs(user: str = "", held: set[int] | None = None, read: Read | None = None) -> list[Job]:
    """All jobs with ranks on this host, newest first.

    `held`: processes that an earlier search is still reading, whose /proc does not answer; they are
    passed over, and the process that this search reads is among them meanwhile.
    """
    uid = uid_of(user)
    held = set() if held is None else held
    found = [_read_one(pid, uid, held, read) for pid in psutil.pids() if pid not in held]
    return _jobs([c for c in found if c is not None])


def search(
    user: str, seconds: float, held: set[int] | None = None, read: Read | None = None
) -> tuple[list[Job], int]:
    """(as `find_jobs`, processes that were not read): /proc of some may not answer, or there are
    too many of them. Several are read at once.
    """
    uid = uid_of(user)
    held = set() if held is None else held
    every = psutil.pids()
    pids = [pid for pid in every if pid not in held]
    done, failed = in_time(pids, lambda pid: _read_one(pid, uid, held, read), _SEARCHERS, seconds)
    if failed:
        raise next(iter(failed.values()))
    found = [done[place] for place in sorted(done)]
    return _jobs([c for c in found if c is not None]), len(every) - len(done)


def _read_one(pid: int, uid: int | None, held: set[int], read: Read | None) -> Found | None:
    held.add(pid)
    try:
        return (read or candidate)(pid, uid)
    finally:
        held.discard(pid)


def _jobs(candidates: list[Found]) -> list[Job]:
    # By user, too: anyone can start a process with the variables of another user's job.
    groups: dict[tuple[str, str], list[Found]] = defaultdict(list)
    for found in _topmost(candidates):
        groups[found.job, found.user].append(found)
    whole = other_ports.joined(groups)
    jobs = [job for (key, _), ranks in whole.items() for job in _split(key, ranks)]
    return sorted(jobs, key=lambda job: -job.started)


def _split(key: str, ranks: list[Found]) -> Iterable[Job]:
    """One job, or several that share a key (two runs on the same port): distinguished by their
    launcher.
    """
    by_rank: dict[int, list[Found]] = defaultdict(list)
    for found in ranks:
        by_rank[found.rank].append(found)
    if all(len(same) == 1 for same in by_rank.values()):
        yield _job(key, ranks)
        return
    by_parent: dict[int, list[Found]] = defaultdict(list)
    for found in ranks:
        by_parent[found.ppid].append(found)
    separate = all(len({f.rank for f in fs}) == len(fs) for fs in by_parent.values())
    if separate and 1 not in by_parent:
        for parent, fs in by_parent.items():
            yield _job(f"{key}/{parent}", fs)
        return
    # A rank's orphan keeps its environment: the process with a living launcher is the rank, else
    # the oldest.
    chosen = [min(same, key=lambda f: (f.ppid == 1, f.started)) for same in by_rank.values()]
    taken = {found.pid for found in chosen}
    left = [str(found.pid) for found in ranks if found.pid not in taken]
    job = _job(key, chosen)
    job.notes.append(
        f"{count(len(left), 'process')} more with the numbers of these ranks, not shown: if left over from an earlier run, kill {' '.join(left)}"
    )
    yield job


def _job(key: str, ranks: list[Found]) -> Job:
    return Job(key, sorted(ranks, key=lambda f: f.rank), max(f.started for f in ranks))


def to_capture(found: Found, node: str) -> RankCapture:
    """The rank as a capture without samples."""
    return RankCapture(
        pid=found.pid,
        ppid=found.ppid,
        name=Path(found.argv[0]).name if found.argv else "",
        argv=redaction.arguments(found.argv[:_WORDS]),
        started=found.started,
        user=found.user,
        rank=found.rank,
        node=node,
        world_size=found.world_size,
        local_rank=found.local_rank,
        local_world_size=found.local_world_size,
        gpu=readable(gpu_of(found.environ, found.local_rank)),
    )
