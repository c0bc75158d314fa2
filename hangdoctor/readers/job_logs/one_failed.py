"""Whose the only error text of a log is, where its launchers name one process alone that failed by itself:
the text has no rank, and torchrun's summary, srun's line or MPI_ABORT's tells it.

Where several failed, or several things were said, nothing shows which of them said what.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable, Sequence

from ...model.log_ends import CRASHES, SENT, short_host
from ...model.log_facts import (
    HYDRA,
    MPI_ABORT,
    AnyFact,
    Ended,
    KilledByLauncher,
    KnownError,
    PythonError,
)
from ...stacks import starters
from .jax_barriers import DOWN

Error = PythonError | KnownError
# They name the process that failed; DeepSpeed's and older torch's name the last one that they started.
_WITNESSES = frozenset(
    {"torchelastic", "slurm", "mpirun", HYDRA, MPI_ABORT, "alps", "composer", "mpt", "jsrun", "poe"}
)
_OF_RANKS = "torchelastic"  # beside it srun speaks of the launchers
_ABORTED = (-signal.SIGABRT, 128 + signal.SIGABRT)
_WORKER = "worker_died"  # a rule
_OF_FORTRAN = "fortran"  # its number is the exit code, and says more
_ONE_RUN_S = 3600.0  # between an error and an end that may belong together, of two files


def name_only_failed(facts: Sequence[AnyFact]) -> None:
    """Give the error the rank, task or local rank of the only process that failed."""
    errors = texts_without_a_rank(facts)
    ends = failed_by_themselves(facts) or _lost_workers(facts)
    speakers = {(error.node, error.pid) for error in errors if error.pid}
    # One line may be known by two rules, of which the first says more.
    lines = {(error.file, error.line): kind_of(error) for error in reversed(errors)}
    if len(set(lines.values())) != 1 or len(ends) != 1 or len(speakers) > 1:
        return
    [end] = ends
    if any(_has_its_own_launcher(facts, error, end) for error in errors):
        return
    for error in errors:
        if not fits(error, end) or not _in_order(error, end) or not _may_be_one(error, end):
            return
    for error in errors:
        error.rank, error.task = end.rank, end.task
        error.local = end.local if error.local < 0 else error.local
        error.worker = error.worker or end.worker
        error.node = error.node or end.node
        error.pid = error.pid or end.pid


def name_first_at_shutdown(facts: Sequence[AnyFact]) -> None:
    """Give the only error text the rank that JAX's coordinator found alone at the barrier of the
    end.
    """
    errors = texts_without_a_rank(facts)
    alone = {f.rank for f in facts if isinstance(f, KnownError) and f.rule == DOWN}
    if len(alone) != 1 or len({(e.file, e.line) for e in errors}) != 1:
        return
    for error in errors:
        [error.rank] = alone


def name_the_only_rank(facts: Iterable[AnyFact], alone: Sequence[bool]) -> None:
    """Give the errors of a file rank 0, where its command line starts one process and no more; `alone`: of
    which files that is so.
    """
    every = list(facts)
    if any(f.rank > 0 or f.task > 0 or f.local > 0 for f in every):
        return
    for error in texts_without_a_rank(every):
        if alone[error.file]:
            error.rank = 0


def name_debugged(facts: Iterable[AnyFact], file: int, ranks: Collection[int]) -> None:
    """Give the only crash of a debugger's session the rank that a person asked the debugger for."""
    crashed = [f for f in facts if isinstance(f, KnownError) and f.file == file]
    crashed = [f for f in crashed if f.rule in CRASHES and f.role == "cause"]
    if len(ranks) != 1 or sum(f.times for f in crashed) != 1 or crashed[0].rank >= 0:
        return
    [crashed[0].rank] = ranks


def name_crashed(facts: Sequence[AnyFact]) -> None:
    """Give the one process that crashed on a node the rank of the only one there that ended by its signal."""
    crashed = [f for f in facts if isinstance(f, KnownError) and f.rule in CRASHES]
    here = [f for f in crashed if f.rank < 0 and f.pid and f.node and f.role == "cause"]
    for node in {short_host(f.node) for f in here}:
        own = [f for f in here if short_host(f.node) == node]
        ends = [
            f for f in facts if isinstance(f, Ended) and f.rank >= 0 and short_host(f.node) == node
        ]
        ends = [f for f in ends if fits(own[0], f)]
        # A container, or a restart, has numbers of its own for processes: one crash, and one end by it
        alone = len({(f.node, f.pid) for f in crashed}) == len(ends) == 1
        ends = [f for f in ends if alone or _may_be_one(own[0], f)]
        if len({f.pid for f in own}) == 1 and len({f.rank for f in ends}) == 1:
            for fact in own:
                fact.rank = ends[0].rank


def texts_without_a_rank(facts: Iterable[AnyFact]) -> list[Error]:
    """All errors that may be the cause; [] where one of them tells who says it, is a launcher's, or
    was cut.
    """
    errors = [f for f in facts if isinstance(f, Error) and f.role == "cause" and not f.survived]
    errors = [e for e in errors if not (isinstance(e, KnownError) and e.logged)]
    errors = [e for e in errors if e.rule != _WORKER]  # the engine's word on one of them
    told = any(e.rank >= 0 or e.task >= 0 or e.local >= 0 or e.worker for e in errors)
    told |= any(isinstance(e, PythonError) and starters.speaker(e.frames) for e in errors)
    cut = any(isinstance(e, PythonError) and not e.error for e in errors)
    return [] if told or cut else errors


def kind_of(error: Error) -> str:
    """What errors have in common that say the same."""
    if error.rule or not isinstance(error, PythonError):
        return error.rule
    return f"{error.error}: {error.message}"


def failed_by_themselves(facts: Iterable[AnyFact]) -> list[Ended]:
    """The ends with an error of their own, one for each process that launchers name."""
    ends = [f for f in facts if isinstance(f, Ended) and f.by.split(" ")[0] in _WITNESSES]
    ends = [f for f in ends if f.code and f.code not in SENT and max(f.rank, f.task, f.local) >= 0]
    if any(f.by == _OF_RANKS for f in ends):
        ends = [f for f in ends if f.by != "slurm"]
    apart: list[Ended] = []
    for end in ends:
        if not any(_same(end, other) for other in apart):
            apart.append(end)
    return apart


def _lost_workers(facts: Iterable[AnyFact]) -> list[Ended]:
    """The workers that an engine says have died; how does not show."""
    died = [f for f in facts if isinstance(f, KnownError) and f.rule == _WORKER and f.worker]
    workers = {f.worker: f for f in died}
    return [
        Ended(code=1, rank=f.rank, worker=name, file=f.file, line=f.line, at=f.at)
        for name, f in workers.items()
    ]


def _same(one: Ended, other: Ended) -> bool:
    """Whether two launchers, or two lines of one, speak of one process."""
    if one.file != other.file and one.by == other.by == "slurm":
        return False  # its tasks are numbered anew in each run
    if one.pid and other.pid:
        return one.pid == other.pid
    if min(one.rank, other.rank) >= 0:
        return one.rank == other.rank
    if min(one.task, other.task) >= 0:
        return one.task == other.task
    if min(one.local, other.local) >= 0:
        return one.local == other.local
    return max(one.rank, one.task) == max(other.rank, other.task) >= 0


def fits(error: Error, end: Ended) -> bool:
    """Whether a process with this error may end so."""
    crash = CRASHES.get(error.rule)
    if end.worker:
        return True
    if crash is not None:
        return end.code in (crash, 128 - crash)
    if error.rule == _OF_FORTRAN:
        return f"({abs(end.code)})" in error.says or end.code in (1, *_ABORTED, -signal.SIGSEGV)
    return end.code > 0 or end.code in _ABORTED


def _in_order(error: Error, end: Ended) -> bool:
    """Whether the error can have come before the end."""
    if error.file == end.file:
        return error.line < end.line
    apart = error.at > 0 and end.at > 0 and not error.inherited
    return not apart or -_ONE_RUN_S < end.at - error.at < _ONE_RUN_S


def _has_its_own_launcher(facts: Iterable[AnyFact], error: Error, end: Ended) -> bool:
    """Whether the file of the error is the output of another launcher than that of the end: of another node."""
    if error.file == end.file:
        return False
    here = [f for f in facts if f.file == error.file]
    stopped = any(isinstance(f, KilledByLauncher) for f in here)
    return stopped or any(isinstance(f, Ended) and f.by == _OF_RANKS for f in here)


def _may_be_one(error: Error, end: Ended) -> bool:
    """Whether nothing shows that they are of two processes."""
    if error.pid and end.pid and error.pid != end.pid:
        return False
    return not (error.node and end.node) or short_host(error.node) == short_host(end.node)
