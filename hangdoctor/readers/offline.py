"""Files that a person collected, distinguished by what is in them, as one capture."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from ..errors import BadInput
from ..files import open_regular
from ..model.capture import JobCapture, NodeCapture
from ..model.log_facts import JobLogs, LastWords, Listed, UnreadFailure
from ..model.start_up import Launch
from ..probe.folder import LAUNCH
from ..probe.format import BESIDE, ENDS_SUFFIX, SUFFIX
from ..text.late import late
from ..text.plain import readable
from ..text.plural import count
from . import (
    flight_recorder,
    fr_trace_text,
    job_logs,
    logged_stacks,
    merged_stacks,
    pyspy_text,
    ras_reader,
    stack_texts,
    stacks_in_logs,
    texts_of_jobs,
)

# People paste lines of the job's log below an answer of RAS, which has no such lines itself.
_OF_A_LOG = late(rb"^\[?(?:rank|default)\d{1,7}\]|^\[E\d* |^Traceback \(most recent", re.M)
_BESIDE_BOXES = tuple(suffix for suffix, _ in BESIDE)  # read with their boxes
_PASTED = 1 << 20  # bytes in which they are looked for


class _Sorted(Struct):
    """Files by what is in them."""

    boxes: list[Path]
    ends: list[Path]
    dumps: list[Path]
    answers: list[Path]  # of RAS
    traces: list[Path]  # printed by torch's fr_trace
    stacks: list[Path]
    logs: tuple[JobLogs, list[str]] | None
    launches: list[Path]  # what the launcher was asked to start
    unknown: JobLogs  # texts of which no line is known

    @property
    def have_operations(self) -> bool:
        """Whether ranks, with what they did, come from something else than stacks or logs."""
        recorded = self.boxes or self.dumps or self.ends or self.traces
        return bool(recorded or (self.answers and not self.stacks))


def read(files: Sequence[Path]) -> JobCapture:
    """Flight Recorder dumps, black boxes, RAS answers and py-spy output, mixed as they come.

    Raises:
        BadInput: nothing in the files can be diagnosed.
    """
    found = _sort(files)
    launch = _launch(found.launches)
    if launch is not None and len(found.launches) == len(files):
        raise BadInput(*_nothing_started(launch))
    if found.have_operations:
        from . import recorded

        capture, starts = recorded.read(found.boxes, found.dumps, found.traces)
        _add_stacks(capture, found.stacks)
        recorded.add_ends(capture, starts, found.ends)
    else:
        capture = _stacks_or_logs(found, files, beside=bool(found.answers))
    _add_ras(capture, found.answers)
    _add_logs(capture, found.logs)
    capture.notes = [readable(note) for note in capture.notes]  # names of files may be any bytes
    _add_launch(capture, launch)
    if not _says_something(capture):
        raise BadInput("none of the files can be diagnosed", "\n  ".join(capture.notes[:10]))
    return capture


def _launch(files: Sequence[Path]) -> Launch | None:
    """What the launcher was asked to start, by the first file that can be read."""
    if not files:
        return None
    from . import launch_file

    return next(filter(None, (launch_file.read(f.parent) for f in files)), None)


def _nothing_started(launch: Launch) -> tuple[str, str]:
    """The error, and its help, where a launcher was started and no rank has left anything."""
    asked = count(launch.world_size, "rank")
    nodes = f" on {count(launch.nodes, 'node')}" if launch.nodes else ""
    name = launch.launcher or "the command"
    return (
        f"no rank has left a black box: {name} was to start {asked}{nodes}",
        "See the output of the launcher, on each node. While it runs: hangdoctor dump --local.",
    )


def _add_launch(capture: JobCapture, launch: Launch | None) -> None:
    """How many ranks there should be: those without a box or a dump are missing."""
    if launch is not None and capture.nodes and capture.ranks():
        capture.nodes[0].launch = launch
        capture.world_size = capture.world_size or launch.world_size


def _sort(files: Sequence[Path]) -> _Sorted:
    launches, rest = _parted(files, lambda f: f.name == LAUNCH)
    boxes, rest = _parted(rest, lambda f: f.suffix == SUFFIX)
    rest = [f for f in rest if f.suffix not in _BESIDE_BOXES]
    ends, rest = _parted(rest, lambda f: f.suffix == ENDS_SUFFIX)
    dumps, rest = _parted(rest, flight_recorder.is_dump)
    answers, rest = _parted(rest, lambda f: ras_reader.is_ras(_head(f)))
    traces, rest = _parted(rest, lambda f: fr_trace_text.is_fr_trace(_head(f, 1 << 16)))
    alone, rest = _parted(rest, lambda f: stack_texts.is_alone(_head(f)))
    both = [f for f in answers if _OF_A_LOG.search(_head(f, _PASTED))]
    logs, rest, unknown = _logs(rest + both)
    rest = [f for f in rest if f not in both]
    if logs is None and any(map(pyspy_text.is_dump, rest)):
        logs, rest, unknown = _logs(rest, stacks=True)  # gdb's output looks like py-spy's at first
    return _Sorted(
        boxes,
        ends,
        dumps,
        answers=answers,
        traces=traces,
        stacks=rest + alone,
        logs=logs,
        launches=launches,
        unknown=unknown,
    )


def _parted(files: Iterable[Path], fits: Callable[[Path], bool]) -> tuple[list[Path], list[Path]]:
    """(those that fit, the others)."""
    fitting: list[Path] = []
    others: list[Path] = []
    for file in files:
        (fitting if fits(file) else others).append(file)
    return fitting, others


def _says_something(capture: JobCapture) -> bool:
    has_ras = any(node.ras for node in capture.nodes)
    return bool(capture.ranks()) or has_ras or capture.logs is not None or capture.over


def _logs(
    files: list[Path], stacks: bool = False
) -> tuple[tuple[JobLogs, list[str]] | None, list[Path], JobLogs]:
    """(what the job logs among the files say, the other files, those of which no line is known)."""
    dumps = [] if stacks else [f for f in files if pyspy_text.is_dump(f)]
    wanted = [f for f in files if f not in dumps and job_logs.is_log(f)]
    if not wanted:
        return None, files, JobLogs()
    logs, silent, notes = job_logs.read(wanted)
    if not logs.facts or (dumps and all(isinstance(fact, Listed) for fact in logs.facts)):
        return None, files, logs  # a list of processes beside stacks is read with them
    if _last_words_alone(logs) and any(_reports_waits(f) for f in wanted):
        return None, files, logs
    of_stacks = [f for f in silent if f.exists() and stack_texts.is_native(_head(f, 1 << 16))]
    silent = [f for f in silent if f not in of_stacks]
    rest = [f for f in files if f not in wanted or f in of_stacks]
    notes += [f"{readable(f.name)}: no line of it is known" for f in silent if f.exists()]
    return (logs, notes), rest, JobLogs()


def _last_words_alone(logs: JobLogs) -> bool:
    return all(isinstance(fact, LastWords) for fact in logs.facts)


def _reports_waits(file: Path) -> bool:
    """Whether MPI has printed in it the stacks of calls that do not get on."""
    return merged_stacks.is_pending(_head(file, _PASTED).decode("utf-8", "replace"))


def _stacks_or_logs(found: _Sorted, files: Sequence[Path], beside: bool = False) -> JobCapture:
    """py-spy output; beside logs or other evidence it may be missing, and be something else."""
    rest, logs = found.stacks, found.logs
    if logs is not None and not rest:
        ranks = logged_stacks.ranks_of(logs[0])
        dumped = None if ranks else stacks_in_logs.read(logs[0], files)
        if dumped is not None:
            return dumped
        nodes = [NodeCapture("", "files", ranks)] if ranks else []
        by_guard = any(len(rank.samples) > 1 for rank in ranks)
        return JobCapture("logs", nodes, origin="files", by_guard=by_guard)
    try:
        return _stacks(rest)
    except BadInput as error:
        if logs is None and not beside and rest and _are_of_a_job(rest, found.unknown):
            return _of_unknown_lines(found.unknown)
        if logs is None and not beside:
            raise BadInput(
                f"{error}, and no line of a job log that is known", error.help
            ) from error
        return JobCapture(job="logs", origin="files", notes=_skipped(rest, error))


def _stacks(files: list[Path]) -> JobCapture:
    """The ranks of stacks; what tells them apart is imported only where there are some.

    Raises:
        BadInput: there are none.
    """
    from . import pyspy_ranks

    return pyspy_ranks.read_files(files)


def _are_of_a_job(files: list[Path], logs: JobLogs) -> bool:
    """Whether the files are a job's, by their names or by what they speak of."""
    if all(map(job_logs.is_named_log, files)) or any(map(_names_who_failed, logs.unread)):
        return True
    if logs.printed:  # by several processes, as their own word for these shows
        return True
    texts = [f for f in files if job_logs.is_log(f)]
    return any(texts_of_jobs.speaks_of_ranks(_head(f, _PASTED)) for f in texts)


def _names_who_failed(failure: UnreadFailure) -> bool:
    """Whether a line that speaks of the end of a process also names it, as no prose does."""
    who = max(failure.rank, failure.local, failure.task, failure.pid - 1)
    return failure.strength > 2 and (who >= 0 or bool(failure.worker))


def _of_unknown_lines(read: JobLogs) -> JobCapture:
    """Logs, by their names, of which no line is known: the answer says so, and what to give instead."""
    logs = JobLogs(
        files=read.files, unread=read.unread, printed=read.printed, excerpts=read.excerpts
    )
    notes = [f"{file.name}: no line of it is known" for file in logs.files]
    return JobCapture(job="logs", origin="files", logs=logs, notes=notes)


def _add_logs(capture: JobCapture, logs: tuple[JobLogs, list[str]] | None) -> None:
    if logs is None:
        return
    ends = capture.logs
    capture.logs, notes = logs
    capture.notes += notes
    if ends is not None:
        join_logs(capture.logs, ends)
    capture.world_size = max(capture.world_size, capture.logs.world_size)


def join_logs(logs: JobLogs, ends: JobLogs) -> None:
    """Facts of the boxes into those of the logs, in the order of time."""
    from .job_logs.resolve import in_order

    logs.of_boxes = [len(logs.files) + index for index in range(len(ends.files))]
    for fact in ends.facts:
        fact.file += len(logs.files)
        fact.attempt = max(0, logs.attempts - ends.attempts + fact.attempt)
    logs.files += ends.files
    logs.facts = in_order(logs.facts + ends.facts)
    logs.world_size = max(logs.world_size, ends.world_size)
    logs.homes = ends.homes | logs.homes
    logs.heard = sorted({*logs.heard, *(f.rank for f in ends.facts if f.rank >= 0)})
    logs.rules |= ends.rules
    logs.unseen = [rank for rank in ends.unseen if rank not in logs.heard]


def _head(path: Path, size: int = 4096) -> bytes:
    try:
        fd = open_regular(path)
        with os.fdopen(fd, "rb") as f:
            return f.read(size)
    except (OSError, BadInput):
        return b""


def _skipped(files: list[Path], error: BadInput) -> list[str]:
    """A note on files without a stack; none on output of a job in which nothing is known."""
    of_a_job = all(f.suffix in (".log", ".out") or not _head(f, 1) for f in files)
    return [] if of_a_job else [f"skipped: {error}"]


def _add_stacks(capture: JobCapture, files: list[Path]) -> None:
    """py-spy output beside dumps: its ranks are only numbered, so it is joined where the numbers
    agree in count.
    """
    if not files:
        return
    try:
        stacks = _stacks(files)
    except BadInput as error:
        capture.notes += _skipped(files, error)
        return
    capture.notes += stacks.notes
    by_rank = {r.rank: r for r in stacks.ranks()}
    if len(by_rank) != capture.world_size:
        capture.notes.append(
            f"stacks of {len(by_rank)} processes and dumps of {capture.world_size} ranks do not match and are not joined"
        )
        return
    for rank in capture.ranks():
        found = by_rank[rank.rank]
        rank.pid, rank.node, rank.argv, rank.samples = (
            found.pid,
            found.node,
            found.argv,
            found.samples,
        )


def _add_ras(capture: JobCapture, files: list[Path]) -> None:
    for path in files:
        try:
            report = ras_reader.read_file(path)
        except BadInput as error:
            capture.notes.append(f"skipped: {error}")
            continue
        capture.nodes.append(NodeCapture("", "ras", ras=report))
        capture.world_size = max(
            [
                capture.world_size,
                report.gpus,
                report.largest,
                *(c.size for c in report.communicators),
            ]
        )
