"""Finding the ranks of this host: which processes they are, and which job each belongs to.

A rank is the topmost Python process, not a launcher, whose environment holds a rank. What it starts
inherits that environment: data-loader workers, compile workers and forked helpers are its children.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import psutil
from msgspec import Struct

from ..errors import NoRanksFound, UsageError
from ..model.capture import Process, RankCapture
from ..text import redaction
from ..text.job_names import short_job
from ..text.plain import readable
from ..text.ranges import MAX_RANKS, number_in
from ..time_limit import in_time
from . import proc, unnumbered
from .jobnames import box_name, is_exactly, job_key, names_job

# (rank, world size, local rank, local world size), in the order in which they are believed.
_VARIABLES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""),
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"),
)
_LAUNCHERS = re.compile(
    r"(^|/)(torchrun|srun|sbatch|salloc|slurmstepd|mpiexec(\.\w+)?|mpirun(\.\w+)?|orted|prted|hydra_pmi_proxy|deepspeed|"
    r"accelerate|hangdoctor|pdsh|ssh|nohup|timeout|tee|py-spy)$"
)
_LAUNCHER_MODULES = re.compile(
    r"^(torch\.distributed\.(run|launch|elastic\S*)|deepspeed\.launcher\.\S+|accelerate\.commands\.\S+|"
    r"hangdoctor(?!\.train\b)\S*)$"
)
_PYTHON = re.compile(r"^(python|pypy)[\d.]*$|^pt_main_thread$")
_NAMED = 6  # jobs in one line
_MAX_BELOW = 512  # processes that a rank has started, that the capture lists
_WORDS, _CHILD_WORDS = 200, 60  # of a command line, of a rank and of what it has started
_MOST_ON_HOST = 4096  # ranks: a host that is said to have more has a wrong variable
_SEARCHERS = 16  # a process whose memory is locked holds one of them for good
_LOOPBACK = {"127.0.0.1", "localhost", "::1", "0.0.0.0"}


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
        return self.ranks[0].user if self.ranks else ""

    @property
    def began(self) -> float:
        """When this run began on this host, in seconds since the epoch: its launcher, which outlives
        ranks that it starts again, else its first rank.
        """
        launchers = [_launcher_started(pid) for pid in {f.ppid for f in self.ranks}]
        return min((at for at in launchers if at), default=self.started)

    def is_named(self, wanted: str) -> bool:
        """Whether `wanted` is one of its names or a part of one; "" names every job."""
        return names_job(wanted, *self.names)


def rank_of(environ: Mapping[str, str]) -> tuple[int, int, int, int] | None:
    """(rank, world size, local rank, local world size) as the environment shows; None without a rank.

    World size is 0, the local ones -1 and 0, where they are not told.
    """
    for rank, world, local, local_world in _VARIABLES:
        number = _number(environ, rank, -1)
        if number < 0:
            continue
        size = _number(environ, world, 0)
        if rank == "SLURM_PROCID":
            size = _number(environ, "SLURM_STEP_NUM_TASKS", size)
        return number, size, _number(environ, local, -1), _number(environ, local_world, 0)
    return None


def _number(environ: Mapping[str, str], name: str, otherwise: int) -> int:
    """A number below `MAX_RANKS`. Anyone's program may use these names for something else: a date,
    a score.
    """
    number = number_in(environ.get(name, "").strip())
    return number if 0 <= number < MAX_RANKS else otherwise


def is_launcher(argv: list[str]) -> bool:
    """True for torchrun, srun, mpiexec and similar launchers, also as ``python -m torch.distributed.run``."""
    words = argv[:4]
    if not words:
        return False
    if _LAUNCHERS.search(words[0]):
        return True
    if not _PYTHON.match(Path(words[0]).name):
        return False
    for i, word in enumerate(argv[1:6], start=1):
        if word == "-m":
            return i + 1 < len(argv) and _LAUNCHER_MODULES.match(argv[i + 1]) is not None
        if not word.startswith("-"):
            return _LAUNCHERS.search(word) is not None
    return False


def _launcher_started(pid: int) -> float:
    """When this process started, 0 where it is no launcher or gone."""
    try:
        process = psutil.Process(pid)
        return process.create_time() if is_launcher(process.cmdline()) else 0.0
    except (psutil.Error, OSError):
        return 0.0


def _is_python(pid: int, argv: list[str]) -> bool:
    try:
        exe = Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        exe = Path(argv[0]).name if argv else ""
    return (
        _PYTHON.match(exe) is not None
        or _PYTHON.match(Path(argv[0]).name if argv else "") is not None
    )


_NAMES = tuple(f"{names[0]}=".encode() for names in _VARIABLES)


def candidate(pid: int, uid: int | None) -> Found | None:
    """The process, where it is Python, no launcher, and its environment or its black box has a rank."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
        numbered = any(name in raw for name in _NAMES)
        if not numbered and unnumbered.FOLDER not in raw:
            return None
        process = psutil.Process(pid)
        with process.oneshot():
            if uid is not None and process.uids().real != uid:
                return None
            environ = process.environ()
            argv = process.cmdline()
            if is_launcher(argv) or not _is_python(pid, argv):
                return None
            ppid = process.ppid()
            numbers, job = rank_of(environ), readable(job_key(environ, ppid))
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
    jobs = [job for (key, _), ranks in groups.items() for job in _split(key, ranks)]
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
    job = _job(key, chosen)
    job.notes.append(
        f"{len(ranks) - len(chosen)} more processes claim the same ranks (left over from an earlier run?); not shown"
    )
    yield job


def _job(key: str, ranks: list[Found]) -> Job:
    return Job(key, sorted(ranks, key=lambda f: f.rank), max(f.started for f in ranks))


def select_job(jobs: list[Job], wanted: str = "") -> tuple[Job, list[str]]:
    """The job that `wanted` names (its key, or a part of it), otherwise the newest; with a note
    where there was a choice.

    Raises:
        NoRanksFound: there is none, or none of that name.
    """
    if not jobs:
        raise NoRanksFound("no rank processes found on this host")
    matching = [j for j in jobs if is_exactly(wanted, *j.names)] or [
        j for j in jobs if j.is_named(wanted)
    ]
    if not matching:
        names = ", ".join(short_job(j.key) for j in jobs)
        raise NoRanksFound(
            f"no job '{wanted}' on this host", f"Running here: {names}. Choose one with --job."
        )
    # Of several users' under one name, the one with most ranks: a process that only borrows the
    # name is alone.
    alike = [j for j in matching if j.key == matching[0].key]
    job = max(alike, key=lambda j: len(j.ranks))
    several = len({j.user for j in jobs}) > 1
    others = [
        f"{short_job(j.key)} ({f'of {j.user}, ' if several else ''}{_counted(len(j.ranks))})"
        for j in jobs
        if j is not job
    ]
    notes = list(job.notes)
    if others:
        how = "--job" if wanted else "the newest; choose another with --job"
        notes.append(
            f"captured job {short_job(job.key)} ({how}); also on this host: {', '.join(others)}"
        )
    return job, notes


def _counted(ranks: int) -> str:
    return f"{ranks} rank{'s' if ranks != 1 else ''}"


def here_now(keys: Sequence[str]) -> str:
    """The jobs on this host, for a person who gave the name of another one."""
    named = ", ".join(map(short_job, keys[:_NAMED])) + (
        f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    )
    return f"jobs on this host: {named}" if keys else "no other job is on this host"


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


def gpu_of(environ: Mapping[str, str], local_rank: int) -> str:
    """The GPU that a rank most likely uses: its entry of CUDA_VISIBLE_DEVICES, else its local rank;
    "" without one.
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES", environ.get("HIP_VISIBLE_DEVICES"))
    if visible is None:
        return ""
    devices = [d.strip() for d in visible.split(",") if d.strip()]
    if not devices:
        return "none"
    if len(devices) == 1:
        return devices[0]
    return devices[local_rank] if 0 <= local_rank < len(devices) else ",".join(devices)


def parents() -> dict[int, list[int]]:
    """{pid: its children} of every process of this host, read once for all ranks."""
    found: dict[int, list[int]] = defaultdict(list)
    for pid in psutil.pids():
        fields = proc.stat_fields(pid)
        if len(fields) > 1:
            found[int(fields[1])].append(pid)
    return found


def _below(pid: int, family: Mapping[int, Sequence[int]]) -> list[int]:
    """Descendants of `pid`, nearest first, up to `_MAX_BELOW`."""
    found: list[int] = []
    waiting = deque(family.get(pid, ()))
    while waiting and len(found) < _MAX_BELOW:
        found.append(waiting.popleft())
        waiting.extend(family.get(found[-1], ()))
    return found


def families(pids: Iterable[int]) -> list[list[Process]]:
    """The living descendants of each process, as `children_of`."""
    family = parents()
    return [children_of(pid, family) for pid in pids]


def children_of(pid: int, family: Mapping[int, Sequence[int]]) -> list[Process]:
    """The living descendants of a rank, oldest first; `family` is what `parents` told."""
    children: list[Process] = []
    for number in _below(pid, family):
        try:
            process = psutil.Process(number)
        except psutil.Error:
            continue
        try:
            argv = redaction.arguments(
                [readable(word) for word in process.cmdline()[:_CHILD_WORDS]]
            )
        except psutil.ZombieProcess:
            argv = []  # a dead worker that no one has waited for explains its parent's wait
        except psutil.Error:
            continue
        try:
            children.append(
                Process(
                    process.pid,
                    process.ppid(),
                    readable(process.name()),
                    argv,
                    started=process.create_time(),
                )
            )
        except psutil.Error:
            continue
    return sorted(children, key=lambda c: (c.started, c.pid))


def lost_ranks(job: Job, node: str) -> list[RankCapture]:
    """Ranks that were started on this host and are no more: zombies of the same launcher, or gaps
    among the local ranks.
    """
    present = {f.rank for f in job.ranks}
    expected = _expected(job.ranks)
    absent = sorted(expected - present)
    if not absent:
        return []
    zombies = _zombies({f.ppid for f in job.ranks if f.ppid > 1})
    world = max(f.world_size for f in job.ranks)
    # A zombie keeps no environment. Launchers start ranks in order, so where the numbers agree the
    # order shows which is which.
    matched = dict(zip(absent, zombies, strict=True)) if len(zombies) == len(absent) else {}
    lost = []
    for rank in absent:
        pid = matched.get(rank, 0)
        code = proc.exit_code(pid) if pid else None
        lost.append(
            RankCapture(pid=pid, rank=rank, node=node, world_size=world, gone=True, exit_code=code)
        )
    return lost


def _expected(ranks: list[Found]) -> set[int]:
    """The ranks that were started on this host, as far as the environments tell."""
    expected: set[int] = set()
    # Ranks of a host follow one another under torchrun; under mpiexec they may go round the hosts.
    firsts = {f.rank - f.local_rank for f in ranks if f.local_rank >= 0 and "RANK" not in f.environ}
    for found in ranks:
        own = found.environ.get("SLURM_GTIDS", "")
        if own and "RANK" not in found.environ:
            expected.update(r for word in own.split(",") if 0 <= (r := number_in(word)) < MAX_RANKS)
        elif found.local_world_size > 0 and found.local_rank >= 0:
            if "RANK" not in found.environ and len(firsts) > 1:
                continue
            first = found.rank - found.local_rank
            expected.update(range(first, first + min(found.local_world_size, _MOST_ON_HOST + 1)))
        elif found.environ.get("MASTER_ADDR") in _LOOPBACK:
            expected.update(
                range(min(found.world_size, _MOST_ON_HOST + 1))
            )  # no one from another host can meet at a loopback address
    if len(expected) > _MOST_ON_HOST:
        return set()
    world = max(f.world_size for f in ranks)
    return {r for r in expected if r < world} if world else expected


def _zombies(parents: set[int]) -> list[int]:
    found: list[tuple[float, int]] = []
    for process in psutil.process_iter():
        try:
            if process.ppid() in parents and process.status() == psutil.STATUS_ZOMBIE:
                found.append((process.create_time(), process.pid))
        except psutil.Error:
            continue
    return [pid for _, pid in sorted(found)]
