"""Ranks that nothing numbers: processes of one parent that hold connections with one another.

`torch.multiprocessing.spawn` gives its processes no environment of their own, and Lightning's
launcher gives them LOCAL_RANK but no RANK and is itself the first rank. What shows that they are
ranks is what they have: a library for distributed work, and TCP connections with one another (to the
store, to their peers). Data-loader workers, which look alike otherwise, have none.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from pathlib import Path

import psutil
from msgspec import Struct

from ..text.plain import readable
from ..text.ranges import MAX_RANKS, number_in
from ..time_limit import in_time
from . import connections, joined_groups, proc, ray_ranks, served_titles
from .discover import Found, Job
from .inherited_ranks import without_helpers
from .jobnames import job_key
from .lost_members import Started, zombies_among
from .own_numbers import differ_in_number, numbers
from .rank_environment import is_launcher
from .spawned_as import BY_ORDER

_LIBRARIES = (b"libtorch", b"libmpi", b"libnccl", b"jaxlib")
_MOST = 1024  # children of one parent that are looked at
_INITS = frozenset(
    {"systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "s6-svscan"}
)
_RAY = "ray::"  # begins the title of Ray's processes: the actor's class and what it is in
_READERS = 16  # a process whose memory is locked holds one of them for good


class Member(Struct):
    """One process of a family and what its environment has of a rank."""

    pid: int
    ppid: int
    started: int  # clock ticks since the start of the host
    argv: list[str]
    environ: dict[str, str]

    @property
    def local_rank(self) -> int:
        """LOCAL_RANK, -1 without one."""
        return number_in(self.environ.get("LOCAL_RANK", ""))


class Family(Struct):
    """Ranks of one job on this host, in the order of `ranks`, their numbers."""

    key: str
    parent: int
    members: list[Member]
    ranks: list[int]
    world_size: int
    by_order: bool  # nothing of their own numbers them: the order of their start does
    local_size: int = 0  # ranks of this host with those that have ended; 0: not known


def with_families(
    jobs: list[Job], uid: int | None, seconds: float, held: set[int] | None = None
) -> list[Job]:
    """The jobs and the families on this host, newest first, without programs that their ranks started.

    Where a scheduler numbered one process and that one started the ranks, its family takes its
    place. `uid`: only this user's; `seconds`: for how long processes are asked, since /proc of some
    may not answer; `held`: those of which that is known.
    """
    single = {j.ranks[0].pid: j for j in jobs if len(j.ranks) == 1}
    ranks = {f.pid for j in jobs if j.ranks[0].pid not in single for f in j.ranks}
    pids = [pid for pid in psutil.pids() if pid not in ranks and pid not in (held or ())]
    found, _ = in_time(pids, lambda pid: _parent_of_one(pid, uid), _READERS, seconds)
    parents = {pids[place]: parent for place, parent in found.items()}
    for parent, children in by_starter(parents).items():
        family = _family(parent, sorted(children)[:_MOST])
        job = _job(family) if family is not None else None
        if job is not None:
            jobs = [j for j in jobs if j is not single.get(parent)] + [job]
    return sorted(without_helpers(jobs), key=lambda job: -job.started)


def by_starter(parents: dict[int, int]) -> dict[int, list[int]]:
    """{process: those that it started} of {process: its parent}.

    A launcher with one of them below it (`hangdoctor run -- python ...` for each) was started itself
    by what started them all.
    """
    children: dict[int, list[int]] = defaultdict(list)
    for pid, parent in parents.items():
        children[parent].append(pid)
    found: dict[int, list[int]] = defaultdict(list)
    for parent, own in children.items():
        above = _above_engine(parent)
        starter = _above_launchers(above) if len(own) == 1 else above
        if starter > 0 and not _adopts(starter):
            found[starter] += own
    return found


def _adopts(pid: int) -> bool:
    """Whether a process is an init, to which orphans of any job fall; in a container, the first
    process may be the job itself.
    """
    try:
        return pid == 1 and Path("/proc/1/comm").read_text().strip() in _INITS
    except OSError:
        return True


def _above_engine(pid: int) -> int:
    """The process itself; of an engine of vLLM, each of which has workers of its own, what started
    all engines.
    """
    try:
        process = psutil.Process(pid)
        title = served_titles.read(process.cmdline()[0])
        above = process.ppid() if title is not None and title.kind == "engine" else 0
    except (psutil.Error, IndexError):
        return pid
    return above if above > 1 and not _adopts(above) else pid


def _above_launchers(pid: int) -> int:
    """The process itself, or the first above it that is no launcher; 0 where none can be read."""
    try:
        process: psutil.Process | None = psutil.Process(pid)
        while process is not None and is_launcher(process.cmdline()):
            process = process.parent()
    except psutil.Error:
        return 0
    return process.pid if process is not None else 0


def job_below(parent: int) -> Job | None:
    """The family that a process started, as a job; None where it started none."""
    children = [pid for pid in psutil.pids() if _parent_of_one(pid, None) == parent]
    family = _family(parent, sorted(children)[:_MOST])
    return _job(family) if family is not None else None


def _job(family: Family) -> Job | None:
    """The job of a family; None where all of them have ended meanwhile."""
    ranks = []
    for place, (rank, member) in enumerate(zip(family.ranks, family.members, strict=True)):
        try:
            process = psutil.Process(member.pid)
            started, user = process.create_time(), readable(process.username())
        except psutil.Error:
            continue
        ranks.append(
            Found(
                member.pid,
                member.ppid,
                rank=rank,
                world_size=family.world_size,
                local_rank=_local_rank(family, place),
                local_world_size=family.local_size or len(family.members),
                job=family.key,
                started=started,
                user=user,
                argv=member.argv,
                environ=member.environ,
            )
        )
    if not ranks:
        return None
    notes = []
    if family.by_order:
        notes.append(f"{BY_ORDER}in the order in which process {family.parent} started them")
    return Job(family.key, ranks, max(r.started for r in ranks), notes)


def _local_rank(family: Family, place: int) -> int:
    """Of the member at this place, with gaps where others have ended."""
    return family.ranks[place] % family.local_size if family.local_size else place


def _parent_of_one(pid: int, uid: int | None) -> int:
    """The parent of a process that may be a rank without a number, 0 of any other."""
    folder = Path(f"/proc/{pid}")
    try:
        if uid is not None and folder.stat().st_uid != uid:
            return 0
        if b"\0RANK=" in b"\0" + (folder / "environ").read_bytes():
            return 0
        with (folder / "maps").open("rb") as maps:
            if not any(name in line for line in maps for name in _LIBRARIES):
                return 0
    except OSError:
        return 0  # it ended, or is not ours to read
    fields = proc.stat_fields(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def _family(parent: int, children: list[int]) -> Family | None:
    connected = connections.between([parent, *children])
    seen = [m for pid in children if (m := _member(pid)) is not None]
    given, world = ray_ranks.given([m.pid for m in seen if _is_rays(m)])
    if given:
        members = [m for m in seen if m.pid in given]
        return _by_own_numbers(parent, members, [given[m.pid] for m in members], world)
    members = [m for m in seen if not is_launcher(m.argv)]  # torchrun of several nodes on this one
    members = _without_workers(parent, members)
    linked = [m for m in members if m.pid in connected]
    # One that has not come as far as the others is connected to none of them.
    members = alike(members, connected)
    by_ray = any(_is_rays(m) for m in members)
    directed = by_ray or any(_title(m) is not None for m in members)
    own = _member(parent) if parent in connected and not directed else None
    own = own if own is not None and _is_rank(own, members) else None
    dead = _dead(parent, members) if linked and not directed else []
    if not linked or len(members) + len(dead) + (own is not None) < 2:
        return None
    named = ray_ranks.find(parent, [m.pid for m in members]) if by_ray else None
    if named is not None:
        return _by_own_numbers(parent, members, *named)
    return _numbered(parent, own, members, dead)


def _without_workers(parent: int, members: list[Member]) -> list[Member]:
    """Those that are no data-loader workers of a parent that is a rank itself: they have no LOCAL_RANK
    where others have one, or no connection but those that their parent has, too.
    """
    numbered = [m for m in members if m.local_rank >= 0]
    if numbered:
        return numbered
    inherited = set(connections.inodes_of(parent))
    held = {m.pid: set(connections.inodes_of(m.pid)) for m in members}
    return [m for m in members if not held[m.pid] or held[m.pid] - inherited]


def _is_rank(own: Member, members: list[Member]) -> bool:
    """Whether what started the members is one of the ranks itself.

    mpirun is none, and neither is a program that only serves the store of those that it started.
    """
    if is_launcher(own.argv):
        return False
    told = any(m.local_rank >= 0 for m in members)
    return told or not connections.only_serves(own.pid, [m.pid for m in members])


def _dead(parent: int, members: list[Member]) -> list[Started]:
    living = [Started(m.started, m.pid) for m in members]
    return zombies_among(parent, living, os.sysconf("SC_CLK_TCK"))


def alike(members: list[Member], connected: set[int]) -> list[Member]:
    """Those that were started like the ones that are connected. Of Ray's processes, all of which
    are, those of the classes that have joined groups of torch, or of that with the most: the others
    direct them. Of vLLM's and SGLang's, those whose titles say that they run the model.
    """
    meant_by_title = served_titles.workers([_title(m) for m in members])
    members = [m for m, works in zip(members, meant_by_title, strict=True) if works]
    kinds = Counter(_kind(m) for m in members if m.pid in connected)
    rays = Counter(_kind(m) for m in members if m.pid in connected and _is_rays(m))
    joined = {_kind(m) for m in members if _is_rays(m) and joined_groups.has_joined(m.pid)}
    most = {max(rays, key=lambda kind: rays[kind])} if rays else kinds.keys()
    meant = joined if rays and joined else most
    found = [m for m in members if _kind(m) in meant]
    return found if rays else _but_for_number(members, found)


def _but_for_number(members: list[Member], found: list[Member]) -> list[Member]:
    """Those that were found, with those whose command lines differ from theirs in a number alone,
    where it numbers them all: one that could not connect is a rank of the job as well.
    """
    lines = [m.argv for m in found]
    with_others = [
        m for m in members if m in found or any(differ_in_number(m.argv, one) for one in lines)
    ]
    told = (
        numbers([m.argv for m in with_others], [m.environ for m in with_others]) if found else None
    )
    return with_others if told is not None else found


def _title(member: Member) -> served_titles.Title | None:
    return served_titles.read(member.argv[0]) if member.argv[:1] else None


def _is_rays(member: Member) -> bool:
    return member.argv[:1] != [] and member.argv[0].startswith(_RAY)


def _numbered(
    parent: int, own: Member | None, members: list[Member], dead: list[Started]
) -> Family | None:
    local = [m.local_rank for m in members]
    told = min(local) >= 0 and len(set(local)) == len(local)
    if any("RANK" in m.environ for m in members):
        return None  # its ranks have numbers
    members = sorted(members, key=lambda m: (m.local_rank if told else 0, m.started, m.pid))
    by_title = served_titles.ranks([_title(m) for m in members])
    if by_title is not None:
        return _by_own_numbers(parent, members, by_title)
    own_numbers = None if told else numbers([m.argv for m in members], [m.environ for m in members])
    if own_numbers is not None and own is None:
        return _by_own_numbers(parent, members, own_numbers)
    if not told and all(map(_is_rays, members)):
        return _by_store(parent, members)
    # Lightning's launcher is the first rank of its node: it starts the others and goes on itself.
    if own is not None and (not told or 0 not in local):
        members = [own, *members]
    environ = members[-1].environ
    places = _places(members, own, dead, told=told)
    size = max(max(places) + 1, len(members) + len(dead))
    node = max(0, number_in(environ.get("NODE_RANK", environ.get("GROUP_RANK", ""))))
    world = number_in(environ.get("WORLD_SIZE", ""))
    world = world if size <= world < MAX_RANKS else size * (node + 1)
    ranks = [node * size + place for place in places]
    key = _key(members, parent)
    family = Family(key, parent, members, ranks, world_size=world, by_order=not told)
    family.local_size = size
    return family


def _by_store(parent: int, members: list[Member]) -> Family:
    """Actors of Ray that nothing numbers: the one that serves their store first, then by their start."""
    serving = [m for m in members if joined_groups.serves_store(m.pid)]
    if len(serving) == 1:
        members = [*serving, *[m for m in members if m is not serving[0]]]
    family = _by_own_numbers(parent, members, list(range(len(members))))
    family.by_order = True
    return family


def _places(
    members: list[Member], own: Member | None, dead: list[Started], *, told: bool
) -> list[int]:
    """The local rank of each member: its own where it has one, else its place in the order of their
    start, in which the dead ones count.
    """
    if told:
        return [0 if m is own else m.local_rank for m in members]
    order = [Started(m.started, m.pid) for m in members] + dead
    order.sort(key=lambda one: (one.started, one.pid))
    by_pid = {one.pid: place for place, one in enumerate(order)}
    return [by_pid[m.pid] for m in members]


def _by_own_numbers(
    parent: int, members: list[Member], ranks: list[int], world: int = -1
) -> Family:
    """A family whose members say their ranks; it may have more on other nodes. `world`: the size
    that goes with them, -1 where only a variable may say it.
    """
    order = sorted(range(len(members)), key=lambda place: ranks[place])
    members = [members[place] for place in order]
    if world < 0:
        world = number_in(members[-1].environ.get("WORLD_SIZE", ""))
    least = max(*ranks, len(ranks) - 1) + 1
    world = world if least <= world < MAX_RANKS else least
    return Family(
        _key(members, parent), parent, members, sorted(ranks), world_size=world, by_order=False
    )


def _key(members: list[Member], parent: int) -> str:
    return readable(job_key(members[-1].environ, parent))


def _member(pid: int) -> Member | None:
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            fields = proc.stat_fields(pid)
            environ = process.environ()
            argv = [readable(word) for word in process.cmdline()]
            return Member(pid, process.ppid(), int(fields[19]), argv, environ=environ)
    except (psutil.Error, OSError, IndexError, ValueError):
        return None


def _kind(member: Member) -> tuple[str, ...]:
    """What processes that were started alike have in common of their command lines."""
    if "--multiprocessing-fork" in member.argv:
        return ("--multiprocessing-fork",)
    title = _title(member)
    if title is not None:
        return (title.program,)
    if _is_rays(member):
        return (re.split(r"[.( ]", member.argv[0])[0],)
    return tuple(member.argv)
