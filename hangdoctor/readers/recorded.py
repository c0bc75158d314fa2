"""Ranks that recorded what they did: black boxes, with how the ranks ended, Flight Recorder dumps, and what
an analyzer printed of them.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import BadInput
from ..model.capture import JobCapture, NodeCapture, RankCapture, SilentNode
from ..text.plain import readable
from . import blackbox, ended_ranks, ended_starts, flight_recorder, fr_trace_text
from .blackbox import Contents
from .ended_by_signal import as_at_the_signal
from .ended_operations import as_at_the_limit
from .ended_places import add_places
from .ended_waits import await_polled, mark_device_waits
from .left_behind import add_left
from .told_layout import told_layout


def read(
    boxes: list[Path], dumps: list[Path], traces: list[Path]
) -> tuple[JobCapture, list[list[Contents]]]:
    """(the ranks with their operations, the boxes by the starts of the job)."""
    notes: list[str] = []
    starts = _starts(boxes, notes)
    capture = _operations(dumps, boxes, starts[-1] if starts else [])
    capture.notes += notes
    _add_traces(capture, traces)
    return capture, starts


def _starts(boxes: list[Path], notes: list[str]) -> list[list[Contents]]:
    """The boxes that can be read, by the starts of the job: the last start is the last one."""
    read = []
    for path in boxes:
        try:
            read.append(blackbox.read_box(path))
        except BadInput as error:
            notes.append(f"skipped: {error}")
    return ended_starts.by_start(read)


def _operations(dumps: list[Path], boxes: list[Path], read: list[Contents]) -> JobCapture:
    """The ranks with their operations; `read`: the boxes of the last start."""
    capture = JobCapture(
        job=readable((dumps or boxes or [Path("ras")])[0].parent.name) or "files", origin="files"
    )
    node = NodeCapture("", "files")
    if dumps:
        result = flight_recorder.read_files(dumps)
        capture.world_size = result.world_size
        node.ranks = [
            RankCapture(pid=0, rank=r, world_size=result.world_size, ops=ops)
            for r, ops in sorted(result.ops.items())
        ]
        capture.notes += [f"skipped: {Path(name).name}: {why}" for name, why in result.skipped]
        if result.missing:
            capture.silent.append(
                SilentNode("", "no dump of these ranks was given", result.missing)
            )
    _put_beside(node, read)
    known = {r.rank for r in node.ranks}
    for contents in read:
        if contents.ops.rank < 0:
            capture.notes.append(_without_rank(contents))
        elif contents.ops.rank not in known:
            known.add(contents.ops.rank)
            node.ranks.append(
                RankCapture(
                    pid=contents.box.pid,
                    rank=contents.ops.rank,
                    node=contents.box.host,
                    world_size=contents.ops.world_size,
                    ops=None if contents.box.uncounted else contents.ops,
                )
            )
    capture.nodes.append(node)
    capture.layout = told_layout(node.ranks)
    capture.world_size = max([capture.world_size, *(r.world_size for r in node.ranks)])
    return capture


def _without_rank(contents: Contents) -> str:
    """What is said of a process that ended before it was given a rank: it is none of the job's."""
    last = contents.ops.operations[-1:]
    place = f", and was in {last[0].op}" if last and last[0].state != "done" else ""
    return f"pid {contents.box.pid} on {contents.box.host} had no rank yet{place}"


def _put_beside(node: NodeCapture, boxes: list[Contents]) -> None:
    """The dumps beside the boxes of the same ranks, as a live capture has them. Where a box is
    missing, the dumps stay alone: the two do not count alike.
    """
    by_rank = {c.ops.rank: c for c in boxes}
    if not all(rank.rank in by_rank for rank in node.ranks):
        return
    for rank in node.ranks:
        contents = by_rank[rank.rank]
        rank.recorded, rank.ops = rank.ops, contents.ops
        rank.pid, rank.node = contents.box.pid, contents.box.host


def _add_traces(capture: JobCapture, traces: list[Path]) -> None:
    """What an analyzer printed of dumps, of ranks whose dumps and boxes are not there themselves."""
    [node] = capture.nodes
    for path in traces:
        try:
            found = fr_trace_text.read_file(path)
        except BadInput as error:
            capture.notes.append(f"skipped: {error}")
            continue
        known = {rank.rank for rank in node.ranks}
        if known:
            capture.notes.append(f"skipped: {path.name}: the dumps themselves are there")
            continue
        capture.job = readable(path.name)
        node.ranks = [
            RankCapture(pid=0, rank=r, world_size=ops.world_size, ops=ops)
            for r, ops in sorted(found.items())
        ]
        capture.world_size = max((ops.world_size for ops in found.values()), default=0)


def add_ends(capture: JobCapture, starts: list[list[Contents]], ends: list[Path]) -> None:
    """How the ranks of a job that is over have ended, in all of its starts."""
    found = []
    for path in ends:
        try:
            found += ended_ranks.read_ends(path)
        except BadInput as error:
            capture.notes.append(f"skipped: {error}")
    boxes = starts[-1] if starts else []
    capture.logs = ended_ranks.facts_of(boxes, found)
    running = any(c.box.status == "live" for c in boxes)
    capture.over = bool(boxes or found) and not running
    asked = as_at_the_signal(boxes, capture.logs, found) if capture.over else 0.0
    if capture.logs is not None:
        as_at_the_limit(boxes, capture.logs)
        await_polled(capture.logs.facts, boxes)
        capture.world_size = max(capture.world_size, capture.logs.world_size)
        ended_starts.add_earlier(capture.logs, starts[:-1], found)
    add_places(capture, boxes, asked)
    if capture.over:
        add_left(capture, boxes, found)
    if capture.logs is not None:
        mark_device_waits(capture.logs.facts, capture.ranks())
