"""Who is who: local ranks and tasks become ranks where the logs show it; facts get one order.

A local rank is a rank where one node is all there is, or where a line of the same stream tells
both. Slurm's task is a rank where each task is one: not where tasks are launchers.
"""

from __future__ import annotations

import calendar
import time
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from ...model.log_facts import (
    AnyFact,
    Counted,
    Ended,
    PythonError,
    Restarted,
    TimedOut,
    Told,
    UnreadFailure,
)
from . import workers
from .by_exit import errors_of_ends, of_the_abort, place_by_srun
from .finished_later import part_attempts
from .marks import Marks
from .on_one_node import name_by_node
from .one_failed import (
    name_crashed,
    name_first_at_shutdown,
    name_only_failed,
    name_the_only_rank,
)
from .python_frames import LAUNCHER
from .stamps import NO_YEAR

_OWN_LAUNCHERS = ("spawn", "lightning")
_MUCH = 50  # lines
_MOST_LOCAL = 8  # ranks of a node, as nodes mostly are
_FIRST_TIMES = 946_684_800.0 + 366 * 86_400.0  # the end of the year that stands for none


class Origin(Struct, frozen=True):
    """Where a file lies: files of one launcher share its folder, else each is its own."""

    agent: str
    attempt: int
    local: int = -1  # the folder is that of this local rank


def of_folders(facts: Sequence[AnyFact], origins: Sequence[Origin]) -> set[int]:
    """Ranks with a folder of their own, also where nothing is known of what they printed; empty
    where local ranks are not ranks.
    """
    local = [f for f in facts if f.local >= 0]
    folders = {o.local for o in origins if o.local >= 0}
    launchers = {o.agent for o in origins if o.local >= 0}
    same = bool(local) and all(f.rank == f.local for f in local)
    return folders if same and len(launchers) == 1 else set()


def are_tasks(facts: Sequence[AnyFact]) -> bool:
    """Whether the ranks of the facts are the tasks before their lines, all of them."""
    known = [f for f in facts if f.task >= 0 and f.rank >= 0]
    return len({f.rank for f in known}) > 1 and all(f.task == f.rank for f in known)


def resolve(
    facts: list[AnyFact],
    of_files: Sequence[Marks],
    origins: Sequence[Origin],
    world: int,
    beside: Sequence[AnyFact] = (),
) -> dict[int, str]:
    """Give facts their ranks, attempts and years; returns the node of each rank. Those `beside` them
    get theirs alike, and tell nothing of the others.
    """
    _years(facts, beside)
    homes: dict[int, str] = {}
    by_pid: dict[tuple[str, int], int] = {}
    for marks in of_files:
        for rank, (node, pid) in marks.homes.items():
            homes.setdefault(rank, node)
            by_pid[(node, pid)] = rank
        by_pid.update({who: rank for who, rank in marks.pids.items() if rank >= 0})
    _by_own_lines(of_files, homes, by_pid)
    _by_table(facts, homes, by_pid)
    errors_of_ends(facts, [origin.agent for origin in origins])
    locals_are_ranks = _one_node(facts, of_files, world)
    known = _told_together(facts, of_files, origins)
    elastic = any(_of_torchrun(f) for f in facts)
    by_name = _by_name(facts, of_files)
    tasks = _tasks_are_ranks(facts, of_files, world)
    for fact in [*facts, *beside]:
        if fact.rank < 0:
            fact.rank = by_name.get(fact.worker, -1)
        if fact.rank < 0:
            fact.rank = _by_numbers(fact, by_pid)
        if fact.rank < 0:
            _by_local(fact, known, of_files, origins[fact.file].agent)
        if fact.rank < 0 and locals_are_ranks:
            fact.rank = fact.local
        if fact.rank < 0 and tasks and not elastic:
            fact.rank = fact.task
        if fact.rank >= 0:
            fact.node = fact.node or homes.get(fact.rank, "")
            if fact.node and not isinstance(fact, UnreadFailure):
                homes.setdefault(fact.rank, fact.node)
    _by_ends(facts, beside)
    name_the_only_rank(facts, [marks.alone for marks in of_files])
    part_attempts(facts)
    return homes


def _by_ends(facts: Sequence[AnyFact], beside: Sequence[AnyFact]) -> None:
    """The ranks of errors by those of the ends, now that local numbers have told these."""
    of_the_abort(facts)
    place_by_srun(facts)
    name_by_node(facts, beside)
    for attempt in {fact.attempt for fact in facts}:
        own = [fact for fact in facts if fact.attempt == attempt]
        name_crashed(own)
        name_only_failed(own)
        name_first_at_shutdown(own)


def _of_torchrun(fact: AnyFact) -> bool:
    """Whether it shows that torchrun started the ranks."""
    if isinstance(fact, PythonError):
        return any(frame.file.endswith(LAUNCHER) for frame in fact.frames)
    return isinstance(fact, Ended) and fact.by == "torchelastic"


def _by_name(facts: Iterable[AnyFact], of_files: Iterable[Marks]) -> dict[str, int]:
    """The ranks of workers that the logs name otherwise."""
    heard = {pair for marks in of_files for pair in marks.workers}
    heard |= {(fact.worker, 0) for fact in facts if fact.worker}
    return workers.ranks(heard)


def _tasks_are_ranks(facts: Sequence[AnyFact], of_files: Iterable[Marks], world: int) -> bool:
    """Whether Slurm's tasks may be ranks: not where each is alone on its node and ranks go beyond
    all of them, since then it starts the ranks of its node.
    """
    homes = {(f.task, f.node) for f in facts if f.task >= 0 and f.node}
    tasks = {task for task, _ in homes}
    alone = len(tasks) > 1 and len(homes) == len(tasks) == len({node for _, node in homes})
    told = {f.rank for f in facts} | {r for marks in of_files for r in marks.rank_of.values()}
    highest = max([world - 1, *told])
    return not alone or tasks != set(range(len(tasks))) or highest < len(tasks)


def _by_local(
    fact: AnyFact, known: Mapping[tuple[str, str, int], int], of_files: Sequence[Marks], agent: str
) -> None:
    """Its rank by its number among the processes of its launcher."""
    if fact.local < 0 and fact.pid:
        fact.local = _spawned(fact.pid, of_files)
    if fact.local >= 0:
        fact.rank = known.get((agent, fact.node, fact.local), -1)


def _by_numbers(fact: AnyFact, by_pid: Mapping[tuple[str, int], int]) -> int:
    """The rank by the number that it has in a group of the whole job, or by its process; -1 unknown."""
    if isinstance(fact, TimedOut | Counted | Told) and not _grouped(fact) and fact.group_rank >= 0:
        return fact.group_rank
    if not fact.pid:
        return -1
    return by_pid.get((fact.node, fact.pid), by_pid.get(("", fact.pid), -1))


def _grouped(fact: TimedOut | Counted | Told) -> bool:
    """Whether its number may be that of a group smaller than the job."""
    return bool(fact.group) and not fact.group.startswith("0")


def _spawned(pid: int, of_files: Sequence[Marks]) -> int:
    return next((m.local_of[pid] for m in of_files if pid in m.local_of), -1)


def _by_own_lines(
    of_files: Iterable[Marks], homes: dict[int, str], by_pid: dict[tuple[str, int], int]
) -> None:
    """The ranks that the only processes of files have printed of themselves."""
    found = [own for marks in of_files if (own := marks.own.found()) is not None]
    for process, rank in found:
        by_pid[process] = rank
        homes.setdefault(rank, process[0])


def _by_table(
    facts: Iterable[AnyFact], homes: dict[int, str], by_pid: dict[tuple[str, int], int]
) -> None:
    """torchelastic's table tells rank, node and process together."""
    for fact in facts:
        if isinstance(fact, Ended) and fact.rank >= 0 and fact.pid:
            by_pid[("", fact.pid)] = fact.rank
            if fact.node and fact.node != "localhost":
                homes.setdefault(fact.rank, fact.node)


def _told_together(
    facts: Sequence[AnyFact], of_files: Sequence[Marks], origins: Sequence[Origin]
) -> dict[tuple[str, str, int], int]:
    """(launcher, node, local rank) -> rank, from lines that tell both."""
    known: dict[tuple[str, str, int], int] = {}
    for origin, marks in zip(origins, of_files, strict=True):
        for (node, local, _), rank in marks.rank_of.items():
            if local >= 0:
                known[(origin.agent, node, local)] = rank
    for fact in facts:
        if fact.rank >= 0 and fact.local >= 0:
            agent = origins[fact.file].agent
            known[(agent, fact.node, fact.local)] = fact.rank
            known.setdefault((agent, "", fact.local), fact.rank)
    _in_one_row(known, origins)
    return known


def _in_one_row(known: dict[tuple[str, str, int], int], origins: Sequence[Origin]) -> None:
    """torchrun numbers the processes of a launcher in one row: from some of them follow the others
    that have a folder.
    """
    for agent in {o.agent for o in origins if o.local >= 0}:
        told = {rank - local for (of, _, local), rank in known.items() if of == agent}
        if len(told) == 1:
            [first] = told
            for origin in origins:
                if origin.agent == agent and origin.local >= 0:
                    known.setdefault((agent, "", origin.local), first + origin.local)
    _on_the_console(known, origins)


def _on_the_console(known: dict[tuple[str, str, int], int], origins: Sequence[Origin]) -> None:
    """What lies beside the folders of one launcher is that launcher's output."""
    folders = {o.agent for o in origins if o.local >= 0}
    if len(folders) != 1:
        return
    ranks = {local: rank for (agent, _, local), rank in known.items() if agent in folders}
    for agent in {o.agent for o in origins} - folders:
        told = {local: rank for (of, _, local), rank in known.items() if of == agent}
        if all(ranks.get(local, rank) == rank for local, rank in told.items()):
            for local, rank in ranks.items():
                known.setdefault((agent, "", local), rank)


def _one_node(facts: Sequence[AnyFact], of_files: Sequence[Marks], world: int) -> bool:
    """Whether nothing speaks of a second node, so that local ranks are ranks."""
    agents = {pid for marks in of_files for pid in marks.agents}
    nodes = {f.node for f in facts if f.node}
    local = [f for f in facts if f.local >= 0]
    differs = any(f.rank != f.local for f in local if f.rank >= 0)
    if differs or len(agents) > 1 or len(nodes) > 1:
        return False
    highest = max((f.local for f in local), default=-1)
    if 0 < world <= _MOST_LOCAL and highest < world:
        return True
    ends = [f for f in facts if isinstance(f, Ended)]
    if any(f.by.startswith("slurm") and f.task > 0 for f in ends) and any(map(_of_torchrun, ends)):
        return False  # srun started several launchers
    launched = [f for f in local if isinstance(f, Ended)]
    tees = len(launched) < len(local)
    # A prefix alone, [default3]:, says nothing of how many nodes there are: the launcher does.
    # mp.spawn and Lightning start the processes of one node themselves.
    counted = any(f.by in _OWN_LAUNCHERS for f in launched) or not (tees and world == 0)
    return bool(launched) and counted and (world == 0 or highest < world <= 16)


def restarts_of(
    facts: Sequence[AnyFact], of_files: Sequence[Marks], lines: Sequence[int]
) -> list[tuple[int, int]]:
    """File and line at which launchers started again in the same file; `lines`: how many each file
    has.
    """
    restarts = [(f.file, f.line) for f in facts if isinstance(f, Restarted)]
    said = {file for file, _ in restarts}
    for index, marks in enumerate(of_files):
        again = [sorted(set(lines)) for lines in marks.agents.values() if len(set(lines)) > 1]
        if again and index not in said:
            restarts += [(index, line) for line in again[0][:-1]]
        elif index not in said and index < len(lines):
            restarts += _went_on(facts, marks, index, lines[index])
    return restarts


def attempts(facts: Sequence[AnyFact], restarts: Sequence[tuple[int, int]]) -> None:
    """Number the attempts of launchers that started again in the same file."""
    for file, line in restarts:
        for fact in facts:
            fact.attempt += fact.file == file and fact.line > line


def _went_on(
    facts: Sequence[AnyFact], marks: Marks, index: int, lines: int
) -> list[tuple[int, int]]:
    """torchrun's only word on a failure, where much follows and not the table of its end: it
    started again.
    """
    at = {line for own in marks.agents.values() for line in own}
    if len(at) != 1 or lines - min(at) < _MUCH:
        return []
    ended = any(isinstance(f, PythonError) and f.error == "ChildFailedError" for f in facts)
    counted = any(f.file == index and f.attempt for f in facts)  # by its iterations
    return [] if ended or counted else [(index, min(at))]


def _years(facts: list[AnyFact], beside: Sequence[AnyFact]) -> None:
    """Stamps without a year get that of the stamps which have one."""
    dated = [f.at for f in facts if f.at > _FIRST_TIMES]
    bare = [f for f in facts if 0 < f.at <= _FIRST_TIMES]
    if not dated or not bare:
        return
    year = time.gmtime(min(dated)).tm_year
    shift = _seconds_to(year)
    bare += [f for f in beside if 0 < f.at <= _FIRST_TIMES]
    for fact in bare:
        fact.at += shift


def _seconds_to(year: int) -> float:
    return float(calendar.timegm((year, 3, 1, 0, 0, 0)) - calendar.timegm((NO_YEAR, 3, 1, 0, 0, 0)))


def in_order(facts: list[AnyFact]) -> list[AnyFact]:
    """By attempt, then by time; in one file always in its own order."""
    when: dict[int, float] = {}
    moments: list[tuple[int, float, int, int, AnyFact]] = []
    for fact in sorted(facts, key=lambda f: (f.file, f.line)):
        own = fact.at if not _late(fact) else 0.0
        last = when.get(fact.file, 0.0)
        when[fact.file] = max(last, own)
        moments.append((fact.attempt, when[fact.file], fact.file, fact.line, fact))
    return [m[-1] for m in sorted(moments, key=lambda m: m[:4])]


def _late(fact: AnyFact) -> bool:
    """A stamp that may be of another moment than the line: the launcher's table."""
    return isinstance(fact, Ended) and fact.by == "torchelastic" and not fact.inherited
