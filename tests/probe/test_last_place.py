"""The place of the main thread in the box: only where nothing gets on, whole or not at all, and
without a trace in the job.
"""

from __future__ import annotations

import gc
import os
import struct
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.model.group_id import group_uid
from hangdoctor.model.operations import Mark, Operation, RankOps
from hangdoctor.probe import awaited_lock, torchnames
from hangdoctor.probe import format as fmt
from hangdoctor.probe.box import BoxWriter
from hangdoctor.probe.group_table import GroupEntry, members_text
from hangdoctor.probe.last_place import LastPlace
from hangdoctor.probe.record_core import Thread, native
from hangdoctor.probe.recorder import Recorder, local
from hangdoctor.readers.blackbox import Contents, read_box
from hangdoctor.readers.box_place import samples_before_limit, samples_of
from hangdoctor.readers.ended_places import add_places

pytestmark = pytest.mark.skipif(native is None, reason="the extension was not built")
S = 1_000_000_000  # ns


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    local.thread = Thread()
    made = Recorder(BoxWriter(tmp_path, "a-job", 1 << 20))
    members = [0, 1]
    index = made.box.add_group(group_uid(members), 2, members_text(members), "world", 0)
    made.groups.default = GroupEntry(index, members, group_uid(members))
    yield made
    local.thread = Thread()


def beats(place: LastPlace, first: int, count: int) -> None:
    for second in range(first, first + count):
        place.beat(second * S)


def wait_in_a_loader(place: LastPlace, first: int, count: int) -> None:
    beats(place, first, count)


def enter(recorder: Recorder, leave: bool = False) -> None:
    entry = recorder.groups.default
    assert entry is not None
    entry.seq += 1
    token = recorder.write(entry, entry.seq, recorder.box.intern("all_reduce"), 0)
    if leave:
        recorder.finish((token,))


def test_it_is_there_only_while_nothing_gets_on(recorder: Recorder) -> None:
    place = LastPlace(recorder)
    wait_in_a_loader(place, 1, 2)
    assert read_box(recorder.box.path).place is None
    wait_in_a_loader(place, 3, 4)
    found = read_box(recorder.box.path).place
    assert found is not None
    own = [f for f in found.frames if f.file.endswith("test_last_place.py")]
    assert [f.name for f in own[:2]] == ["beats", "wait_in_a_loader"]
    assert (found.since_s, found.seen_s) == (3.0, 6.0) and found.cpu_s < 3.0
    enter(recorder)
    beats(place, 7, 1)
    assert read_box(recorder.box.path).place is None
    beats(place, 8, 3)
    again = read_box(recorder.box.path).place
    assert again is not None and again.since_s == 9.0


def train(recorder: Recorder, told: threading.Event, ends: threading.Event, calls: int) -> None:
    for _ in range(calls):
        enter(recorder)
    told.set()
    ends.wait(60)


@pytest.mark.parametrize(
    ("by_main", "leaves", "calls", "own"),
    [(1, True, 3, True), (4, True, 3, False), (1, True, 0, False), (1, False, 3, False)],
)
def test_it_is_that_of_the_thread_that_calls_collectives_where_the_main_one_does_not(
    recorder: Recorder, by_main: int, leaves: bool, calls: int, own: bool
) -> None:
    """Below Ray the main thread sets torch.distributed up and serves, and another one trains."""
    for _ in range(by_main):
        enter(recorder, leave=leaves)
    told, ends = threading.Event(), threading.Event()
    thread = threading.Thread(target=train, args=(recorder, told, ends, calls))
    thread.start()
    try:
        assert told.wait(60)
        place = LastPlace(recorder)
        wait_in_a_loader(place, 1, 6)
        found = read_box(recorder.box.path).place
        assert found is not None and found.numbers == {}
        assert found.thread == (thread.native_id if own else 0)
        names = [f.name for f in found.frames]
        assert ("train" in names) is own and ("wait_in_a_loader" in names) is not own
        assert found.cpu_s < 3.0
    finally:
        ends.set()
        thread.join()
    place.beat(9 * S)  # it is gone, and the main thread's is known
    gone = read_box(recorder.box.path).place
    assert gone is None or gone.thread == 0


def test_what_cpp_is_given_is_progress(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond what is recorded: a thread of the job that only polls beside it is none."""
    issued = [7]
    monkeypatch.setattr(torchnames, "issued", lambda: issued[0])
    entry = recorder.groups.default
    assert entry is not None
    recorder.groups.by_id[1] = entry
    place = LastPlace(recorder)
    beats(place, 1, 4)
    assert read_box(recorder.box.path).place is not None
    entry.seq, issued[0] = 1, 8  # by another thread, through torch.distributed
    beats(place, 5, 1)
    assert read_box(recorder.box.path).place is not None
    issued[0] = 9
    beats(place, 6, 1)
    contents = read_box(recorder.box.path)
    assert contents.place is None and contents.ops.got_on_s == 6.0


def crop(place: LastPlace, second: int) -> None:
    place.beat(second * S)


def score(place: LastPlace, second: int) -> None:
    place.beat(second * S)


def sample(place: LastPlace, seconds: range) -> None:
    """Other functions of it at each heartbeat."""
    for second in seconds:
        (crop if second % 2 else score)(place, second)


def test_a_computation_that_changes_its_frames_is_where_it_never_left(recorder: Recorder) -> None:
    place = LastPlace(recorder)
    sample(place, range(1, 21))
    recorder.box.put(fmt.H_BEAT_WALL, 20 * S)
    contents = read_box(recorder.box.path)
    found = contents.place
    assert found is not None and found.since_s == 20.0 and found.idle_since_s == 1.0
    assert (found.beats, found.runnable, found.state) == (18, 18, "R") and found.spins
    samples = samples_of(contents.box, operations(1.0), found, 20.0)
    assert [s.at_s for s in samples] == [0.0, 19.0]
    for one in samples:
        [thread] = one.threads
        assert thread.frames[0].name == "sample" and thread.state == "R"
    # It computed before, and waits since.
    waits = structs.replace(found, state="S")
    [one] = samples_of(contents.box, operations(1.0), waits, 20.0)
    assert one.threads[0].frames[0].name == "score" and not one.threads[0].state
    few = structs.replace(found, runnable=9)
    assert len(samples_of(contents.box, operations(1.0), few, 20.0)) == 1


def test_a_wait_for_the_store_is_known_by_its_record(recorder: Recorder) -> None:
    """It has no frame of its own, and its line may say anything."""
    place = LastPlace(recorder)
    for second in range(1, 21):
        crop(place, second)
    recorder.box.put(fmt.H_BEAT_WALL, 20 * S)
    contents = read_box(recorder.box.path)
    assert contents.place is not None
    inner = contents.place.frames[0]
    ops = operations(1.0)
    wait = Operation("", 1, "store_wait", "entered", entered_s=1.0, site=f"f (x.py:{inner.line})")
    ops.operations = [*ops.operations, wait]
    first, *_ = samples_of(contents.box, ops, contents.place, 20.0)
    assert "store.wait" in first.threads[0].frames[0].code
    for other in (structs.replace(wait, site="f (x.py:1)"), structs.replace(wait, left_s=2.0)):
        ops.operations = [other]
        found = samples_of(contents.box, ops, contents.place, 20.0)
        assert not any("store.wait" in one.threads[0].frames[0].code for one in found)


def test_the_line_of_a_place_is_read_where_its_file_is_as_it_was(recorder: Recorder) -> None:
    beats(LastPlace(recorder), 100, 12)
    recorder.box.put(fmt.H_BEAT_WALL, 111 * S)
    contents = read_box(recorder.box.path)
    ops = operations(100.0)

    def line(began_s: float) -> str:
        box = structs.replace(contents.box, created_s=began_s)
        first, *_ = samples_of(box, ops, contents.place, 0.0)
        return first.threads[0].frames[0].code

    assert line(began_s=Path(__file__).stat().st_mtime + 1) == "place.beat(second * S)"
    assert line(began_s=1.0) == "", "the file was changed after the process began"


def test_the_place_of_a_wait_that_failed_is_what_it_left_last(recorder: Recorder) -> None:
    """The process lives on for some heartbeats, and gets on out of the wait."""
    place = LastPlace(recorder)
    wait_in_a_loader(place, 1, 20)
    assert read_box(recorder.box.path).left is None
    enter(recorder)
    beats(place, 21, 1)
    contents = read_box(recorder.box.path)
    box, left = contents.box, contents.left
    assert contents.place is None and left is not None
    assert (left.since_s, left.seen_s, left.frames[1].name) == (3.0, 20.0, "wait_in_a_loader")
    ops = operations(0.5)
    waits = Operation("g", 9, "barrier", "entered", entered_s=1.0)
    ops.operations = [*ops.operations, waits]
    [first, last] = samples_before_limit(box, ops, left, 20.5)
    assert first.threads[0].frames[1].name == "wait_in_a_loader" and last.at_s == 17.0
    assert samples_before_limit(box, ops, left, 30.0) == [], "it was somewhere else by then"
    assert samples_before_limit(box, ops, left, 2.5) == [], "it came there after the limit"
    assert samples_before_limit(box, ops, left, 0.0) == [], "no rank reached a limit"
    for other in (
        structs.replace(waits, state="done", left_s=20.0),  # it got on
        structs.replace(waits, entered_s=10.0),  # it was there before it waited
        structs.replace(waits, asynchronous=True),
    ):
        ops.operations = [other]
        assert samples_before_limit(box, ops, left, 20.5) == []


def test_the_holder_of_an_awaited_file_lock_is_there_with_it(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def holder(pid: int) -> int:
        asked.append(pid)
        return 4711

    monkeypatch.setattr(awaited_lock, "holder", holder)
    place = LastPlace(recorder)
    wait_in_a_loader(place, 1, 2)
    assert read_box(recorder.box.path).box.lock_holder == 0 and not asked
    wait_in_a_loader(place, 3, 9)
    assert read_box(recorder.box.path).box.lock_holder == 4711
    assert asked == [os.getpid()] * 2  # not with each beat
    enter(recorder)
    beats(place, 12, 1)
    kept = read_box(recorder.box.path)
    assert kept.place is None and kept.left is not None
    assert kept.box.lock_holder == 4711, "it belongs to the place that was left"
    monkeypatch.setattr(awaited_lock, "holder", lambda pid: 0)
    wait_in_a_loader(place, 13, 4)
    assert read_box(recorder.box.path).box.lock_holder == 0


def test_what_is_half_written_is_not_read(recorder: Recorder) -> None:
    wait_in_a_loader(LastPlace(recorder), 1, 4)
    guard = struct.unpack_from("<Q", recorder.box.map, fmt.H_PLACE_GUARD[0])[0]
    assert guard and guard % 2 == 0
    recorder.box.put(fmt.H_PLACE_GUARD, guard | 1)
    assert read_box(recorder.box.path).place is None


def test_however_deep_and_however_named_it_stays_in_its_bytes(recorder: Recorder) -> None:
    place = LastPlace(recorder)
    space: dict[str, object] = {"beats": beats, "place": place}
    name = "größe_" + "x" * 300
    text = f"def {name}(n):\n    {name}(n - 1) if n else beats(place, 1, 4)\n{name}(400)"
    exec(compile(text, "/data/\N{GREEK SMALL LETTER MU}\t\n" * 60 + "job.py", "exec"), space)
    found = read_box(recorder.box.path).place
    assert found is not None and 3 <= len(found.frames) < 20
    assert found.frames[1].name.endswith("x" * 60) and found.frames[1].file.endswith("job.py")
    assert recorder.box.map[fmt.H_END_AT[0] : fmt.H_END_AT[0] + 8] == bytes(8)


def test_reading_frames_keeps_and_makes_nothing_of_the_jobs() -> None:
    """Another thread reads them while this one calls functions, whose locals go when they return."""

    class Local:
        pass

    gone: list[int] = []
    reads, over = 0, threading.Event()

    def read() -> None:
        nonlocal reads
        while not over.is_set():
            assert native.program_place() is not None
            reads += 1

    def calls(n: int) -> None:
        own = Local()
        weakref.finalize(own, lambda: gone.append(threading.get_ident()))
        sum(range(n))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for n in range(3000):
            calls(n % 50)
            assert len(gone) == n + 1
    finally:
        over.set()
        reader.join()
    assert reads > 0 and set(gone) == {threading.get_ident()}
    here = sys._getframe()
    held = sys.getrefcount(here)
    objects = len(gc.get_objects())
    for _ in range(1000):
        native.program_place()
    assert sys.getrefcount(here) == held and len(gc.get_objects()) <= objects + 1


def test_a_child_of_another_thread_has_no_place() -> None:
    """Its only thread is not the one that was read: that one's state is gone."""
    said: list[int] = []

    def fork() -> None:
        child = os.fork()
        if not child:
            os._exit(0 if native.program_place() is None else 1)
        said.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    child = os.fork()
    if not child:
        os._exit(0 if native.program_place() is not None else 1)
    said.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    assert said == [0, 0]


def operations(last: float) -> RankOps:
    """One all_reduce a second, the last at `last`."""
    every = [
        Operation("g", int(at), "all_reduce", "done", entered_s=at, left_s=at + 0.5)
        for at in (last - 2, last - 1, last)
    ]
    return RankOps(0, 2, operations=every)


def test_a_place_counts_that_was_kept_for_longer_than_the_job_ever_paused(
    recorder: Recorder,
) -> None:
    wait_in_a_loader(LastPlace(recorder), 100, 12)
    recorder.box.put(fmt.H_BEAT_WALL, 111 * S)
    contents = read_box(recorder.box.path)
    box, place = contents.box, contents.place
    assert place is not None and place.since_s == 102.0

    def counts(ops: RankOps, until: float) -> bool:
        return bool(samples_of(box, ops, place, until))

    assert counts(operations(100.0), 0.0) and counts(operations(100.0), 110.0)
    assert not counts(operations(108.5), 0.0)  # it had just got on
    slow = RankOps(0, 2, marks=[Mark("iteration", at, int(at)) for at in (80.0, 95.0, 100.0)])
    assert not counts(slow, 110.0)  # its steps take as long
    early = RankOps(0, 2, operations=[operations(103.0).operations[2]])
    assert not counts(early, 110.0) and counts(early, 0.0) is (111.0 - 103.5 > 10.0)
    assert not counts(operations(100.0), 101.5)  # it came there after the first end
    box.heartbeat_s = 130.0
    assert not counts(operations(100.0), 0.0)  # the process ran on, and was seen elsewhere


def test_where_no_calls_are_recorded_only_work_is_progress(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.uncounted = True
    recorder.box.put_text(fmt.H_BACKEND, "jax")
    place = LastPlace(recorder)
    spent = iter([0, 10**9, 2 * 10**9, *[2 * 10**9 + 10**6] * 60])
    monkeypatch.setattr("hangdoctor.probe.last_place.time.process_time_ns", lambda: next(spent))
    recorder.box.put(fmt.H_CREATED_WALL, 100 * S)
    beats(place, 100, 20)
    contents = read_box(recorder.box.path)
    box = structs.replace(contents.box, heartbeat_s=119.0)
    assert contents.ops.got_on_s == 102.0, "the last beat at which it had worked"
    assert samples_of(box, contents.ops, contents.place, 0.0) == [], "not for long enough"
    assert beside_one_that_is_stuck(contents) == [3, 0], "all have one then"
    works = Contents(structs.replace(box), structs.replace(contents.ops, rank=2), [])
    assert beside_one_that_is_stuck(contents, works) == [3], "who works may be the cause"
    beats(place, 120, 10)
    contents = read_box(recorder.box.path)
    box = structs.replace(contents.box, heartbeat_s=129.0)
    assert len(samples_of(box, contents.ops, contents.place, 0.0)) == 2


def beside_one_that_is_stuck(own: Contents, *others: Contents) -> list[int]:
    """Who has a place: rank 3, idle for 31 s, with `own` of less, and `others`."""
    assert own.place is not None
    long = structs.replace(own.place, since_s=90.0, idle_since_s=88.0)
    ops = structs.replace(own.ops, rank=3, got_on_s=88.0)
    own.box.heartbeat_s = 119.0
    early = structs.replace(own.box, created_s=88.0)
    boxes = [
        Contents(early, ops, [], place=long),
        Contents(own.box, structs.replace(own.ops, rank=0), [], place=own.place),
        *others,
    ]
    ranks = [RankCapture(pid=1, rank=contents.ops.rank) for contents in boxes]
    capture = JobCapture("j", [NodeCapture("", "files", ranks)])
    add_places(capture, boxes)
    assert capture.by_heartbeat
    return [rank.rank for rank in ranks if rank.samples]
