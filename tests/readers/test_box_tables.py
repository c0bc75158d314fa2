"""The tables of a black box, byte by byte: ends of texts, places of records, what moved."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.errors import BadInput
from hangdoctor.model.group_id import group_uid
from hangdoctor.probe import format as fmt
from hangdoctor.probe.box import BoxWriter
from hangdoctor.probe.group_table import GroupEntry, members_text
from hangdoctor.probe.record_core import Thread
from hangdoctor.probe.recorder import Recorder, local
from hangdoctor.readers.blackbox import Contents, contents_of, moved, read_box
from hangdoctor.readers.box_tables import Tables

MEMBERS = [0, 1, 2, 3]


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    local.thread = Thread()
    made = Recorder(BoxWriter(tmp_path, "a-job", 1 << 20))
    uid = group_uid(MEMBERS)
    index = made.box.add_group(uid, 4, members_text(MEMBERS), "", 0)
    made.groups.default = GroupEntry(index, MEMBERS, uid)
    yield made
    local.thread = Thread()


def enter(recorder: Recorder) -> tuple[int, int]:
    entry = recorder.groups.default
    assert entry is not None
    entry.seq += 1
    return recorder.write(entry, entry.seq, recorder.box.intern("all_reduce\tsum\t\t"), 0)


def tables(recorder: Recorder) -> Tables:
    data = recorder.box.path.read_bytes()
    return Tables(recorder.box.path, data, data)


def test_a_text_may_end_where_its_table_does_and_no_later(recorder: Recorder) -> None:
    begin, room, _ = recorder.box.regions["strings"]
    at = room - 16
    body = bytes(recorder.box.map[begin + at : begin + room])
    for length, text in ((12, "x" * 12), (13, ""), (1 << 31, "")):
        body = fmt.STRING_HEAD.pack(length) + b"x" * 12
        recorder.box.map[begin + at : begin + room] = body
        assert tables(recorder).text(at // fmt.STRING_UNIT) == text, length
    assert tables(recorder).text(room // fmt.STRING_UNIT) == ""
    assert tables(recorder).text((room - 4) // fmt.STRING_UNIT + 1) == ""


def test_the_name_that_a_group_got_later_is_its_name(recorder: Recorder) -> None:
    for name in ("tensor", "", "another"):
        recorder.box.add_group(group_uid(MEMBERS), 4, members_text(MEMBERS), name, 0)
    [group], uids = tables(recorder).groups()
    assert (group.name, group.ranks, len(uids)) == ("tensor", MEMBERS, 4)


def test_two_snapshots_of_different_sizes_are_no_box(recorder: Recorder) -> None:
    data = recorder.box.path.read_bytes()
    for first, second in ((data[:-128], data), (data + b"x", data), (data[:-1], data[:-1])):
        with pytest.raises(BadInput, match="truncated"):
            Tables(recorder.box.path, first, second)


def test_a_record_in_the_place_of_another_is_torn(recorder: Recorder) -> None:
    at, _ = enter(recorder)
    recorder.finish(((at, 1),))
    box = recorder.box.map
    box[at * 8 + fmt.RECORD_BYTES : at * 8 + 2 * fmt.RECORD_BYTES] = box[
        at * 8 : at * 8 + fmt.RECORD_BYTES
    ]
    read = read_box(recorder.box.path)
    assert ([op.seq for op in read.ops.operations], read.torn) == ([1], 1)


@pytest.mark.parametrize(
    ("said", "sizes"),
    [
        ("dp=2 pp=2 tp=2", (2, 2, 2)),
        ("dp=2 of mine pp=4 tp=1", (2, 4, 1)),
        ("dp=2 pp=2 tp=3", None),
        ("dp=2 pp=2", None),
        ("dp=2 pp=2 tp=2 ep=1", None),
        ("dp=8 pp=1 tp=0", None),
        ("", None),
    ],
)
def test_the_layout_that_a_rank_says(
    recorder: Recorder, said: str, sizes: tuple[int, int, int] | None
) -> None:
    recorder.box.put_text(fmt.H_LAYOUT, said)
    recorder.box.put(fmt.H_WORLD, 8)
    found = read_box(recorder.box.path).ops.layout
    assert (found and (found.dp, found.pp, found.tp)) == sizes


def test_marks_have_their_kind_number_and_text(recorder: Recorder) -> None:
    recorder.mark(fmt.ITERATION, 7)
    recorder.mark(fmt.MICRO_BATCH, -1)
    recorder.mark(fmt.PHASE, -1, recorder.box.intern("evaluate"))
    marks = read_box(recorder.box.path).ops.marks
    assert [(m.kind, m.number, m.text) for m in marks] == [
        ("iteration", 7, ""),
        ("micro_batch", -1, ""),
        ("phase", -1, "evaluate"),
    ]
    assert len(read_box(recorder.box.path, last=2).ops.marks) == 2


def test_each_sign_of_progress_alone_is_one(recorder: Recorder) -> None:
    handle = enter(recorder)

    def read() -> Contents:
        data = recorder.box.path.read_bytes()
        return contents_of(recorder.box.path, data, data)

    before = read()
    assert not moved(before, read())

    def entered() -> None:
        enter(recorder)

    def put(place: tuple[int, str], value: int) -> None:
        recorder.box.put(place, value)

    for step in (
        lambda: recorder.finish((handle,)),
        entered,
        lambda: put(fmt.H_ITERATION, 5),
        lambda: put(fmt.H_PHASE, recorder.box.intern("evaluate")),
        lambda: put(fmt.H_PID, 1),
        lambda: put(fmt.H_CREATED_WALL, 1),
    ):
        step()
        after = read()
        assert moved(before, after)
        before = after
    put(fmt.H_BEAT_WALL, 1)
    struct.pack_into("<Q", recorder.box.map, fmt.H_BEAT_MONO[0], 1)
    assert not moved(before, read()), "a heartbeat is no progress"
