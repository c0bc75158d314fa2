"""Processes that a launcher killed to clean up, behind an error that one of the program had printed before.

mpiexec names a rank that it killed as it names one that died by itself; the error, even one without a rank, is the
cause. A kill for lack of memory, or one after which nothing of the kind stands before, is none of this.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...model.log_facts import (
    HYDRA,
    AnyFact,
    Ended,
    KnownError,
    OomKill,
    Progress,
    PythonError,
)
from .scene import Scene
from .swept import communicates

# They end all processes by SIGKILL or SIGTERM once one has failed, and list those too
_LISTS_ITS_KILLS = (HYDRA, "slurm", "pals", "alps", "mpispawn", "mpiexec")
_KILLED = frozenset({-9, -15})
_ENDS = ("error", "dead")  # kinds of errors that end a process


def by_the_launcher(scene: Scene, error: AnyFact, deaths: Sequence[AnyFact]) -> bool:
    """Whether all these deaths are kills, right behind the error in one file."""
    if not isinstance(error, PythonError | KnownError) or scene.of(OomKill):
        return False
    ends = [f for f in deaths if isinstance(f, Ended)]
    killed = bool(ends) and all(map(_may_be_its_kill, ends))
    after = all(f.file == error.file and f.line > error.line for f in ends)
    return killed and after and _ends_its_process(scene, error) and not _went_on(scene, error)


def _may_be_its_kill(end: Ended) -> bool:
    by = end.by.split(" ")[0].rstrip(",")
    return by in _LISTS_ITS_KILLS and end.code in _KILLED and "memory" not in end.by


def _ends_its_process(scene: Scene, error: PythonError | KnownError) -> bool:
    """Whether the program's own runtime ended it, whatever another process did."""
    text = scene.logs.rules.get(error.rule)
    if error.logged or (isinstance(error, PythonError) and (error.thread or not error.error)):
        return False
    if text is None:
        return isinstance(error, PythonError) and not communicates(error)
    return text.kind in _ENDS and not text.between


def _went_on(scene: Scene, error: AnyFact) -> bool:
    """Whether the job made progress after it."""
    steps = [f for f in scene.of(Progress) if f.file == error.file]
    return any(max(f.line, f.moved) > error.line for f in steps)
