"""Events of the training in a black box: written by the probe, read while it writes on."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.probe import format as fmt
from hangdoctor.probe.box import BoxWriter
from hangdoctor.probe.event_table import EventTable
from hangdoctor.readers.box_events import events_of
from hangdoctor.readers.box_position import BoxWatch


@pytest.fixture
def box(tmp_path: Path) -> BoxWriter:
    return BoxWriter(tmp_path, "events-test", 1 << 20)


def told(watch: BoxWatch, after: int = 0) -> list[tuple[int, str, int, str]]:
    return [(e.serial, e.kind, e.iteration, e.text) for e in watch.events(after)]


def test_events_are_read_in_order_from_the_last_one_that_was_seen(box: BoxWriter) -> None:
    table, watch = EventTable(box), BoxWatch(box.path)
    assert told(watch) == []
    table.add("spike", "loss 14", 7020)
    table.add("nan", "", -1)
    assert told(watch) == [(1, "spike", 7020, "loss 14"), (2, "nan", -1, "")]
    assert told(watch, after=1) == [(2, "nan", -1, "")]
    assert told(watch, after=2) == []
    made = watch.events(0)[0].at_s
    assert abs(made - box_made(box)) < 60


def box_made(box: BoxWriter) -> float:
    (made,) = struct.unpack_from(fmt.H_CREATED_WALL[1], box.map, fmt.H_CREATED_WALL[0])
    return float(made) / 1e9


def test_of_more_than_there_is_room_for_the_newest_are_there(box: BoxWriter) -> None:
    table, watch = EventTable(box), BoxWatch(box.path)
    for number in range(1, 41):
        table.add("spike", f"number {number}", number)
    assert [e.serial for e in watch.events(0)] == list(range(41 - fmt.EVENTS, 41))
    assert [e.text for e in watch.events(39)] == ["number 40"]
    assert events_of(bytes(box.map)) == watch.events(0)


def test_a_long_text_is_cut_between_two_characters(box: BoxWriter) -> None:
    EventTable(box).add("k" * 99, "ä" * 150, 1)
    [event] = BoxWatch(box.path).events(0)
    assert (event.kind, event.text) == ("k" * 23, "ä" * 99)


def test_one_that_is_written_over_just_now_is_left_out(box: BoxWriter) -> None:
    table, watch = EventTable(box), BoxWatch(box.path)
    for number in range(1, 4):
        table.add("spike", str(number), number)
    begin, _, width = box.regions["events"]
    struct.pack_into("<Q", box.map, begin + 2 * width, 0)
    assert [e.serial for e in watch.events(0)] == [1, 3]
    fmt.EVENT.pack_into(box.map, begin + 2 * width, 2, 0, 0, b"k", b"half", 18, 0)
    assert [e.serial for e in watch.events(0)] == [1, 3]


@pytest.mark.parametrize(
    "region",
    [(0, 0, 0), (4096, 100, 32), (1 << 60, 16, fmt.EVENT_BYTES), (4096, 1 << 31, fmt.EVENT_BYTES)],
)
def test_boxes_of_older_probes_and_damaged_ones_have_no_events(
    box: BoxWriter, region: tuple[int, int, int]
) -> None:
    EventTable(box).add("spike", "loss", 1)
    struct.pack_into(fmt.H_EVENTS[1], box.map, fmt.H_EVENTS[0], *region)
    assert BoxWatch(box.path).events(0) == [] and events_of(bytes(box.map)) == []


SAYS = """
import hangdoctor.probe as probe
probe.event("early", "without the probe nothing is written")
probe.install()
probe.iteration(63)
probe.event("spike", "loss 5.2")
probe.event("nan", iteration=64)
probe.event(7, object(), "x")
import os, signal
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_job_said_outlives_it(tmp_path: Path) -> None:
    environ = {"HANGDOCTOR_DIR": str(tmp_path), "RANK": "3", "WORLD_SIZE": "4"}
    environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", SAYS], env=environ, timeout=60, check=False)
    assert done.returncode == -9
    [path] = tmp_path.glob(f"*{fmt.SUFFIX}")
    found = [(e.kind, e.iteration, e.text) for e in BoxWatch(path).events(0)]
    assert found == [("spike", 63, "loss 5.2"), ("nan", 64, ""), ("", -1, "")]
