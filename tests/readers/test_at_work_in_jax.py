"""Ended ranks of JAX: all but one had long waited for a compiled function, and that one was at work
to the end.
"""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture, RankCapture
from hangdoctor.model.operations import RankOps
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


@pytest.mark.parametrize(
    ("works_until", "found"), [(END, [("busy", [1])]), (1030.0, [])], ids=["to the end", "it died"]
)
def test_who_was_at_work_is_what_they_waited_for(
    works_until: float, found: list[tuple[str, list[int]]]
) -> None:
    boxes = [jax(0), jax(1, works_until), jax(2), jax(3)]
    ranks = [RankCapture(pid=c.box.pid, rank=c.ops.rank, node="n1", world_size=4) for c in boxes]
    capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=4)
    capture.over, capture.origin = True, "files"
    add_places(capture, boxes)
    said = diagnose(capture)
    assert causes(said) == found, said.summary
