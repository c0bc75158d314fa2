"""Answers as text: what one screen holds of a verdict, of a rank's stacks and of its operations.

Texts of the job are data of whoever wrote the job: hidden characters are shown as such.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from ..model.capture import JobCapture, RankCapture
from ..model.diagnosis import Cause, Diagnosis, StackGroup
from ..model.operations import Group, Operation, spoken
from ..model.start_up import WaitingAgent
from ..storage.event_rows import EventRow
from ..storage.incidents import Incident
from ..text.durations import duration
from ..text.group_words import group_words
from ..text.plain import visible
from ..text.plural import count, ranks
from ..text.ranges import format_ranks

MOST_CHARACTERS = 6000
_CAUSES, _WAITS, _MISSING, _EVIDENCE = 4, 6, 6, 3
_FRAMES = 30
_THREADS = 6


def cut(lines: Iterator[str]) -> str:
    """The lines, as far as there is room for them, and how many are left out."""
    kept: list[str] = []
    room, rest = MOST_CHARACTERS, 0
    for line in lines:
        shown = visible(line)[:1000]
        room -= len(shown) + 1
        if room < 0:
            rest += 1
        else:
            kept.append(shown)
    return "\n".join([*kept, f"({rest} more lines)"] if rest else kept)


def verdict(diagnosis: Diagnosis) -> Iterator[str]:
    """Status, causes with their strongest evidence, who waits for whom, what was missing."""
    job = diagnosis.job
    yield f"{diagnosis.status}: {diagnosis.summary}"
    on = f" on {count(len(job.nodes), 'node')}" if job.nodes else ""
    yield f"job {job.id}, {count(job.world_size, 'rank')}{on}"
    for cause in diagnosis.causes[:_CAUSES]:
        yield from _cause(cause)
    for wait in diagnosis.waits[:_WAITS]:
        on = f" in {wait.on.op}" if wait.on.op else ""
        yield f"waiting{on}: {ranks(wait.ranks)}, for {ranks(wait.for_)}"
    for lack in diagnosis.missing[:_MISSING]:
        yield f"missing: {lack.what} ({lack.why})"


def _cause(cause: Cause) -> Iterator[str]:
    yield f"cause: {cause.kind}, confidence {cause.confidence:.0%}: {cause.summary}"
    for one in cause.evidence[:_EVIDENCE]:
        of = f", {ranks(one.ranks)}" if one.ranks else ""
        yield f"  evidence ({one.source}{of}): {one.says}"
    if cause.advice:
        yield f"  to do: {cause.advice}"


def waiting(agent: WaitingAgent) -> str:
    """A job whose torchrun has started no rank."""
    launch = agent.launch
    come = f", {agent.come} there" if agent.come else ""
    waits = f"torchrun waits for {count(launch.nodes, 'node')}{come}"
    return f"{launch.run or launch.endpoint} (no rank yet: {waits}, pid {agent.pid}, {duration(agent.seconds)})"


def stacks(groups: Sequence[StackGroup], rank: int) -> Iterator[str]:
    """The stacks of one rank, innermost frame first, and which ranks have the same."""
    own = [group for group in groups if rank in group.ranks]
    if not own:
        yield f"no stack of rank {rank} was read"
    for group in own[:_THREADS]:
        others = f", the same in {ranks(group.ranks)}" if len(group.ranks) > 1 else ""
        yield f"thread {group.thread}{others}:"
        for frame in group.frames[: -_FRAMES - 1 : -1]:
            yield f"  {frame.name} ({frame.file}:{frame.line})"


def operations(capture: JobCapture, rank: int, last: int) -> Iterator[str]:
    """The last operations of one rank, the newest last."""
    found = next((one for one in capture.ranks() if one.rank == rank), None)
    if found is None:
        yield f"rank {rank} is not in this capture"
        return
    ops = found.ops
    if ops is None:
        yield f"rank {rank} has no operation records: start the job with `hangdoctor run`"
        return
    yield f"rank {rank} {_place(found)}"
    groups = {group.uid: group for group in ops.groups}
    for operation in list(ops.operations)[-last:]:
        yield _operation(operation, groups.get(operation.group), capture.taken)


def _place(rank: RankCapture) -> str:
    ops = rank.ops
    at = f", iteration {ops.iteration}" if ops is not None and ops.iteration >= 0 else ""
    phase = f", phase {ops.phase}" if ops is not None and ops.phase else ""
    return f"({rank.node}, pid {rank.pid}{at}{phase})"


def _operation(one: Operation, group: Group | None, taken: float) -> str:
    members = format_ranks(group.ranks) if group is not None else ""
    of = group_words(spoken(group.name), members) if group is not None else ""
    to = f" peer {one.peer}" if one.peer >= 0 else ""
    state = "done" if one.left_s else f"{one.state} {duration(max(0.0, taken - one.entered_s))} ago"
    where = f"at {one.site}" if one.site else ""
    said = " ".join(filter(None, [one.dtype, one.shapes, one.detail, where]))
    return f"{one.op} #{one.seq}{to} of {of or 'no group'}: {state}; {said}"


def incidents(rows: Sequence[Incident], most: int) -> Iterator[str]:
    """The newest incidents, newest first."""
    if not rows:
        yield "no incidents"
    for row in list(reversed(rows))[:most]:
        what = " ".join(filter(None, [row.status, row.kind]))
        yield f"{row.id} {clock(row.at)} {what}: {row.summary}"


def events(rows: Sequence[EventRow], most: int) -> Iterator[str]:
    """What the training said of itself, newest first."""
    for row in list(reversed(rows))[:most]:
        yield f"event {clock(row.at)} {row.kind} of rank {row.rank}: {row.text}"


def clock(at: float) -> str:
    """A time of day for people."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at))
