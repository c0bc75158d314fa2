"""Whose a failure in unread words is: the rank, the process, or how many there are that say it alike."""

from __future__ import annotations

from collections.abc import Sequence

from ...model.log_facts import MPI_ABORT, Ended, KnownError, UnreadFailure
from ...text.late import late
from ..findings.log_stories import Someone
from .candidate import is_named
from .scene import Scene

_SEVERAL = 2  # ranks of which a program names the one that failed, or processes that say one line
_ASSERTED = late(r"\b[Aa]ssert(?:ion)?\b.{0,300}?\bfail(?:ed|ure)?\b")


def is_named_beside_aborts(scene: Scene, fact: UnreadFailure) -> bool:
    """Whether it names the one rank that failed, as the program saw it, while several called MPI_Abort."""
    aborted = {f.rank for f in scene.of(Ended) if f.by == MPI_ABORT}
    if len(aborted) < _SEVERAL or fact.rank < 0 or fact.launcher or fact.end:
        return False
    said = {f.rank for f in scene.unread if f.rank >= 0 and not (f.launcher or f.end)}
    return said == {fact.rank}


def ranks_by_process(scene: Scene, alike: Sequence[UnreadFailure]) -> list[int]:
    """The ranks of these processes, where other lines of each tell it."""
    known = {(f.node, f.pid): f.rank for f in scene.of(KnownError) if f.pid and f.rank >= 0}
    found = {known.get((f.node, f.pid), -1) for f in alike}
    return sorted(found) if -1 not in found else []


def whose(alike: Sequence[UnreadFailure]) -> Someone:
    """Who printed these lines, which have no rank."""
    first = alike[0]
    processes = {(f.node, f.pid) for f in alike if f.pid}
    devices = sorted({f.device for f in alike if f.device >= 0})
    if len(processes) > 1:
        return Someone(pid=first.pid, processes=len(processes))
    tasks = tuple(sorted({f.task for f in alike if f.task >= 0}))
    if len(tasks) > 1:
        return Someone(tasks=tasks)
    local = first.local if not first.pid else -1  # else it is the device of a process
    return Someone(local, first.task, first.pid, first.worker, devices=tuple(devices))


def whose_or_how_many(scene: Scene, alike: Sequence[UnreadFailure]) -> Someone:
    """Whose line it is. A line without a name that the log has several times is one of each of as many processes
    if each prints it once: as many called MPI_Abort, or it is an assertion, which ends its process.
    """
    someone, first = whose(alike), alike[0]
    if someone != Someone() or is_named(first) or len(alike) > 1 or first.times < _SEVERAL:
        return someone
    aborts = sum(f.times for f in scene.of(Ended) if f.by == MPI_ABORT and f.file == first.file)
    once = aborts == first.times or _ASSERTED.search(first.text) is not None
    return Someone(processes=first.times) if once else someone
