"""Files that a person collected, distinguished by what is in them, as one capture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import BadInput
from ..files import open_regular
from ..model.capture import JobCapture, NodeCapture, RankCapture, SilentNode
from ..probe.format import SUFFIX
from ..text.plain import readable
from . import blackbox, flight_recorder, pyspy_ranks, ras
from .rank_operations import told_layout


def read(files: Sequence[Path]) -> JobCapture:
    """Flight Recorder dumps, black boxes, RAS answers and py-spy output, mixed as they come.

    Raises:
        BadInput: nothing in the files can be diagnosed.
    """
    boxes = [f for f in files if f.suffix == SUFFIX]
    dumps = [f for f in files if f not in boxes and flight_recorder.is_dump(f)]
    answers = [f for f in files if f not in boxes and f not in dumps and ras.is_ras(_head(f))]
    rest = [f for f in files if f not in boxes and f not in dumps and f not in answers]
    if not boxes and not dumps and not answers:
        capture = pyspy_ranks.read_files(rest)
    else:
        capture = _operations(dumps, boxes)
        _add_stacks(capture, rest)
        _add_ras(capture, answers)
    capture.notes = [readable(note) for note in capture.notes]  # names of files may be any bytes
    if not capture.ranks() and not any(n.ras for n in capture.nodes):
        raise BadInput("none of the files can be diagnosed", "\n  ".join(capture.notes[:10]))
    return capture


def _head(path: Path) -> bytes:
    try:
        fd = open_regular(path)
        with os.fdopen(fd, "rb") as f:
            return f.read(4096)
    except (OSError, BadInput):
        return b""


def _operations(dumps: list[Path], boxes: list[Path]) -> JobCapture:
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
    known = {r.rank for r in node.ranks}
    for path in boxes:
        try:
            contents = blackbox.read_box(path)
        except BadInput as error:
            capture.notes.append(f"skipped: {error}")
            continue
        if contents.ops.rank not in known:
            known.add(contents.ops.rank)
            node.ranks.append(
                RankCapture(
                    pid=contents.box.pid,
                    rank=contents.ops.rank,
                    node=contents.box.host,
                    world_size=contents.ops.world_size,
                    ops=contents.ops,
                )
            )
    capture.nodes.append(node)
    capture.layout = told_layout(node.ranks)
    capture.world_size = max([capture.world_size, *(r.world_size for r in node.ranks)])
    return capture


def _add_stacks(capture: JobCapture, files: list[Path]) -> None:
    """py-spy output beside dumps: its ranks are only numbered, so it is joined where the numbers
    agree in count.
    """
    if not files:
        return
    try:
        stacks = pyspy_ranks.read_files(files)
    except BadInput as error:
        capture.notes.append(f"skipped: {error}")
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
            report = ras.read_file(path)
        except BadInput as error:
            capture.notes.append(f"skipped: {error}")
            continue
        capture.nodes.append(NodeCapture("", "ras", ras=report))
        capture.world_size = max([capture.world_size, *(c.size for c in report.communicators)])
