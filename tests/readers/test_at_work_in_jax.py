"""Ended ranks of JAX: all but one had long waited for a compiled function, and that one was at work
to the end.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.operations import RankOps
from hangdoctor.probe import format as fmt
from hangdoctor.readers.blackbox import Contents
from hangdoctor.readers.box_place import LastPlace
from hangdoctor.readers.ended_places import add_places
from tests.support.captures import causes
from tests.support.ended_boxes import dead_box

END = 1060.0
RESULT = [
    Frame("main", "/app/sim.py", 86, "total = step(put(e), put(t))"),
    Frame("<module>", "/app/sim.py", 95),
]


def jax(rank: int, works_until: float = 0.0) -> Contents:
    """Its heartbeat goes to the end; `works_until`: so did its work, and it has no place."""
    box = dead_box(100 + rank, rank, world_size=4)
    box.heartbeat_s, box.uncounted, box.backend = END, True, "jax"
    got_on = works_until or 1002.0
    ops = RankOps(rank, 4, source="blackbox", heartbeat_s=END, got_on_s=got_on)
    if works_until:
        return Contents(box, ops, [])
    place = LastPlace(RESULT, 1004.0, END, 0.0, idle_since_s=got_on, beats=56, state="S")
    return Contents(box, ops, [], place=place)


def said_of(boxes: list[Contents]) -> Diagnosis:
    ranks = [RankCapture(pid=c.box.pid, rank=c.ops.rank, node="n1", world_size=4) for c in boxes]
    capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=4)
    capture.over, capture.origin = True, "files"
    add_places(capture, boxes)
    return diagnose(capture)


@pytest.mark.parametrize(
    ("works_until", "found"), [(END, [("busy", [1])]), (1030.0, [])], ids=["to the end", "it died"]
)
def test_who_was_at_work_is_what_they_waited_for(
    works_until: float, found: list[tuple[str, list[int]]]
) -> None:
    said = said_of([jax(0), jax(1, works_until), jax(2), jax(3)])
    assert causes(said) == found, said.summary


@pytest.mark.parametrize(("ago", "shown"), [(5, True), (50, False)])
def test_its_line_is_that_of_its_last_stack(tmp_path: Path, ago: int, shown: bool) -> None:
    """Of one from long before the end nothing follows."""
    boxes = [jax(0), jax(1, END), jax(2), jax(3)]
    boxes[1].box.path = str(tmp_path / "n1-101.blackbox")
    at, pid = int((END - ago) * 1e9), boxes[1].box.pid
    text = f"\t\t(at)={at}\n\t\t(thread)={pid} (since)={at}\nsolve\t/v/site-packages/numpy/linalg.py\t9\nnewton\t/app/sim.py\t22\n"
    data = fmt.STACKS_MAGIC + struct.pack(fmt.BESIDE_LENGTH, len(text)) + text.encode()
    (tmp_path / "n1-101.stacks").write_bytes(data)
    assert ("computing in newton (sim.py:22)" in said_of(boxes).summary) is shown
