"""Whose an error without a rank is, by how the processes ended: torchelastic's table, srun's lines."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from msgspec import structs

from ...model.log_facts import (
    HYDRA,
    MPI_ABORT,
    AnyFact,
    Cancelled,
    Ended,
    KilledByLauncher,
    KnownError,
    PythonError,
)

Error = PythonError | KnownError
_PARENTS = frozenset({"lightning", "mpirun", HYDRA, MPI_ABORT, "alps", "composer"})
_KILLED = frozenset({-9, -15})
_PORT = "port_in_use"  # a rule
_ABORT = (
    "assertion",
    "cxx_exception",
    "cxx_pure_virtual",
    "heap_broken",
)  # rules of errors that abort the program


def errors_of_ends(facts: list[AnyFact], origins: Sequence[str]) -> None:
    """Give errors their ranks; `origins`: the launcher whose output each file is."""
    _join_of_shell(facts)
    errors = [f for f in facts if isinstance(f, Error) and f.role == "cause" and f.rank < 0]
    # A process did not end by what it caught and logged, where another error was not caught.
    errors = [f for f in errors if not _was_logged(f)] or errors
    _only_one_failed(facts, origins)
    _all_failed_alike(facts, [e for e in errors if e.rank < 0])
    _all_of_srun(facts, [e for e in errors if e.rank < 0])
    _of_launchers(facts, [e for e in errors if e.rank < 0])
    _first_of_srun(facts, [e for e in errors if e.rank < 0])
    _first_of_parent(facts, [e for e in errors if e.rank < 0])
    of_the_abort(facts)


def _join_of_shell(facts: Sequence[AnyFact]) -> None:
    """The process that the shell says was killed is the only rank that a script's own line gives
    this end.
    """
    ends = [f for f in facts if isinstance(f, Ended) and f.by == "shell"]
    for end in [f for f in ends if f.rank < 0 and f.pid]:
        own = [f for f in ends if f.rank >= 0 and (f.code, f.file) == (end.code, end.file)]
        others = [f for f in ends if f.rank < 0 and f.pid and f.code == end.code]
        if len(own) == 1 and len(others) == 1:
            end.rank = own[0].rank


def _was_logged(fact: Error) -> bool:
    return isinstance(fact, PythonError) and fact.logged


def of_the_abort(facts: Sequence[AnyFact]) -> None:
    """What ends a program of C or C++ by an abort is of the only process that was seen to abort."""
    errors = [f for f in facts if isinstance(f, Error) and f.role == "cause" and f.rank < 0]
    aborted = {f.rank: f for f in facts if isinstance(f, Ended) and f.code == -signal.SIGABRT}
    told = [e for e in errors if e.rule in _ABORT]
    if len(aborted) == 1 and len(told) == 1 and told[0].times == 1:
        [end] = aborted.values()
        told[0].rank, told[0].pid = end.rank, told[0].pid or end.pid
        told[0].node = told[0].node or end.node


def place_by_srun(facts: Sequence[AnyFact]) -> None:
    """The only process that torchelastic saw fail ran on the node of the only task that srun names: that task
    is its launcher, which ends for it.
    """
    ends = [f for f in facts if isinstance(f, Ended) and f.code]
    elastic = [f for f in ends if f.by == "torchelastic"]
    tasks = [f for f in ends if f.by.startswith("slurm")]
    if len({(f.pid, f.local) for f in elastic}) != 1 or len(tasks) != 1 or tasks[0].code <= 0:
        return
    first, task = elastic[0], tasks[0]
    if any(f.node for f in elastic) or first.file != task.file or first.line > task.line:
        return
    for end in elastic:
        end.node = task.node


def _only_one_failed(facts: Sequence[AnyFact], origins: Sequence[str]) -> None:
    """The only rank that ended by itself: torchelastic's table has all ranks of its node, and it
    says that it killed the others.
    """
    ends = _listed(facts)
    failed = {f.rank for f in ends if f.code > 0}
    errors = [f for f in facts if isinstance(f, PythonError) and f.role == "cause"]
    stopped = any(isinstance(f, KilledByLauncher) and f.pid for f in facts)
    others = stopped or any(f.code < 0 for f in ends)
    if len(failed) != 1 or len(errors) != 1 or not others:
        return
    [error] = errors
    end = next(f for f in ends if f.rank in failed)
    here = error.local < 0 and origins[error.file] == origins[end.file]
    if error.rank < 0 and error.times == 1 and (here or error.local == end.local):
        error.rank, error.node = end.rank, error.node or end.node


def _all_failed_alike(facts: list[AnyFact], errors: Sequence[Error]) -> None:
    """As many errors of one kind as ranks that ended by themselves: each of these had it."""
    ends = {f.rank: f for f in _listed(facts) if f.code > 0}
    alike = {_kind(error) for error in errors if _is_whole(error)}
    named = any(isinstance(f, Error) and f.role == "cause" and f.rank >= 0 for f in facts)
    if named or len(ends) < 2 or len(alike) != 1 or "" in alike:
        return
    places = {(f.file, f.attempt) for f in [*errors, *ends.values()]}
    told = sum(error.times for error in errors)
    if len(places) > 1 or (told < len(ends) and (told < 2 or told + _torn(facts) < len(ends))):
        return
    errors = [e for e in errors if _is_whole(e)]
    first = next((e for e in errors if isinstance(e, PythonError)), errors[0])
    whole = [structs.replace(first, rank=r, node=e.node, times=1) for r, e in ends.items()]
    first.rank, first.node = whole[0].rank, whole[0].node
    facts += whole[1:]


def _is_whole(error: Error) -> bool:
    return isinstance(error, KnownError) or bool(error.error)


def _torn(facts: Sequence[AnyFact]) -> int:
    """Tracebacks without their last line: those of ranks that print at once tear one another."""
    errors = [f for f in facts if isinstance(f, PythonError) and f.rank < 0]
    return sum(f.times for f in errors if not f.error)


def _kind(error: Error) -> str:
    return error.rule or (error.error if isinstance(error, PythonError) else "")


def _all_of_srun(facts: list[AnyFact], errors: Sequence[Error]) -> None:
    """As many errors of one kind as tasks that exited with an error of their own."""
    ends = {f.task: f for f in facts if isinstance(f, Ended) and f.by == "slurm" and f.code > 0}
    raised = [e for e in errors if _is_whole(e)]
    told = any(isinstance(f, Error) and f.role != "launcher" and f not in errors for f in facts)
    files = {f.file for f in [*errors, *ends.values()]}
    alone = not told and len(files) == 1 and len({_kind(e) for e in errors}) == 1
    if not alone or len(ends) < 2 or sum(e.times for e in raised) != len(ends):
        return
    if any(e.task >= 0 or e.local >= 0 or e.pid for e in raised):
        return
    first = raised[0]
    whole = [structs.replace(first, task=t, node=e.node, times=1) for t, e in ends.items()]
    first.task, first.node = whole[0].task, whole[0].node
    facts += whole[1:]


def _of_launchers(facts: list[AnyFact], errors: Sequence[Error]) -> None:
    """As many errors of torchrun's own start as tasks that had exited before any torchrun saw a worker fail."""
    ports = [e for e in errors if e.rule == _PORT and e.task < 0 and not e.node]
    raised = [e for e in ports if e.says.startswith("RuntimeError: ")]
    files = {f.file for f in ports}
    if not raised or len(files) != 1:
        return
    ends = [f for f in facts if isinstance(f, Ended) and f.file in files]
    seen = min((f.line for f in ends if f.by == "torchelastic"), default=0)
    tasks = {f.task: f for f in ends if f.by == "slurm" and f.code > 0 and f.line < seen}
    before = all(e.line < f.line for e in ports for f in tasks.values())
    if not before or len(tasks) != sum(e.times for e in raised):
        return
    [first, *others] = tasks.values()
    for error in ports:
        error.task, error.node = first.task, first.node
    for end in others:
        facts.append(structs.replace(raised[0], task=end.task, node=end.node, times=1))


def _first_of_srun(facts: Sequence[AnyFact], errors: Sequence[Error]) -> None:
    """The only error, before the line of the only task that exited before srun ended the others."""
    lone = len(errors) == 1 and errors[0].times == 1 and errors[0].task < 0
    ends = [f for f in facts if isinstance(f, Ended) and f.by.startswith("slurm")]
    if not lone or len(ends) < 2 or errors[0].file != ends[0].file:
        return
    [error], end = errors, ends[0]
    later = [f for f in ends[1:] if f.file == end.file]
    stops = [f for f in facts if isinstance(f, KilledByLauncher | Cancelled) and f.file == end.file]
    stopped = min((f.line for f in stops), default=0)
    killed = all(f.code in _KILLED for f in later)
    told = killed or all(f.line > stopped > end.line for f in later)
    alone = all(f.line > end.line for f in later) and len(later) == len(ends) - 1
    if end.code > 0 and alone and told and error.line <= end.line:
        error.task, error.node = end.task, error.node or end.node


def _first_of_parent(facts: Sequence[AnyFact], errors: Sequence[Error]) -> None:
    """The only error, before the word of a parent that ends all others at the first end it sees."""
    ends = [f for f in facts if isinstance(f, Ended) and f.first and f.by in _PARENTS]
    failed = {(f.rank, f.local) for f in ends}
    if (
        ends and ends[0].by == MPI_ABORT
    ):  # which came first: the crash of another one follows from it
        errors = [e for e in errors if e.file != ends[0].file or e.line < ends[0].line]
    if len(errors) != 1 or errors[0].times != 1 or len(failed) != 1:
        return
    if ends[0].code <= 0 and (ends[0].by, ends[0].code) != ("alps", -6):
        return
    [error], end = errors, ends[0]
    others = [f for f in facts if isinstance(f, Error) and f.role == "cause" and f is not error]
    others = [f for f in others if not _was_logged(f)]
    if end.by == MPI_ABORT:
        others = [f for f in others if f.file != end.file or f.line < end.line]
    if not others and error.file == end.file and error.line < end.line and error.local < 0:
        error.rank, error.local, error.node = end.rank, end.local, error.node or end.node


def _listed(facts: Sequence[AnyFact]) -> list[Ended]:
    """Ends of torchelastic's table."""
    return [f for f in facts if isinstance(f, Ended) and f.by == "torchelastic" and f.rank >= 0]
