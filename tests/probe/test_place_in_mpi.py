"""The place of a rank of MPI, whose waits use the processor: where no Python runs, nothing gets on."""

from __future__ import annotations

import _thread
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.probe import format as fmt
from hangdoctor.probe.box import BoxWriter
from hangdoctor.probe.last_place import LastPlace
from hangdoctor.probe.record_core import Thread, native
from hangdoctor.probe.recorder import Recorder, local
from hangdoctor.readers import ended_ranks
from hangdoctor.readers.blackbox import Contents, read_box
from hangdoctor.readers.box_place import LastPlace as BoxPlace
from hangdoctor.readers.box_place import samples_of
from hangdoctor.readers.ended_places import add_places
from hangdoctor.stacks.place_search import find_place
from tests.support.ended_boxes import ended
from tests.support.probe_ranks import ROOT

pytestmark = pytest.mark.skipif(
    not hasattr(native, "lock_switches"), reason="not with this interpreter"
)
S = 1_000_000_000  # ns
MASTER = "def collect(world):\n    for w in range(1, 4):\n        world.Recv(buffer, source=w)\n"
# Two threads that wait in C: the lock changes hands where a third one runs Python, and else not.
LOCK = """
import ctypes, _thread, threading
from hangdoctor.probe.record_core import native
pause, over = ctypes.CDLL(None).usleep, _thread.allocate_lock()
over.acquire()
def stable():
    for _ in range(500):
        before = native.lock_switches()
        pause(20000)
        if native.lock_switches() == before:
            return before
def watch():
    first = stable()
    other = threading.Thread(target=pause, args=(1,))
    other.start()
    other.join()
    print(stable() > first)
    over.release()
_thread.start_new_thread(watch, ())
over.acquire()
"""


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    local.thread = Thread()
    made = Recorder(BoxWriter(tmp_path, "a-job", 1 << 20))
    made.uncounted = made.polls = True
    made.box.put_text(fmt.H_BACKEND, "mpi")
    yield made
    local.thread = Thread()


def beats(place: LastPlace, first: int, count: int) -> None:
    for second in range(first, first + count):
        place.beat(second * S)


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the interpreter's lock has changed hands, in its only entry."""
    switches = [3]
    monkeypatch.setattr("hangdoctor.probe.last_place._switches", lambda: switches[0])
    return switches


@pytest.fixture
def computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two heartbeats the process works for a second."""
    spent = iter(range(0, 10**15, S))
    monkeypatch.setattr("hangdoctor.probe.last_place.time.process_time_ns", lambda: next(spent))


def read(recorder: Recorder, second: int) -> Contents:
    """Its box, made at second 1, with the last heartbeat at `second`."""
    recorder.box.put(fmt.H_CREATED_WALL, S)
    recorder.box.put(fmt.H_BEAT_WALL, second * S)
    return read_box(recorder.box.path)


def stuck(contents: Contents) -> bool:
    return bool(samples_of(contents.box, contents.ops, contents.place, 0.0))


def test_a_thread_that_computes_without_python_gets_nothing_on(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, computes: None, lock: list[int]
) -> None:
    place = LastPlace(recorder)
    beats(place, 1, 15)
    assert not stuck(read(recorder, 15)), "not for long enough"
    beats(place, 16, 10)
    assert stuck(read(recorder, 25))
    lock[0] += 2  # as the main thread takes it, when MPI returns
    monkeypatch.setattr("hangdoctor.probe.last_place._TURNS_NS", 0)
    beats(place, 26, 1)
    contents = read(recorder, 26)
    assert contents.place is None and contents.ops.got_on_s == 26.0


def test_a_job_that_waits_at_one_line_again_and_again_gets_on(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, lock: list[int]
) -> None:
    """Beside other jobs it has hardly any time on the CPU, and each heartbeat meets it in one call."""
    monkeypatch.setattr("hangdoctor.probe.last_place.time.process_time_ns", lambda: 0)
    monkeypatch.setattr("hangdoctor.probe.last_place._TURNS_NS", 0)
    place = LastPlace(recorder)
    for second in range(1, 40):
        lock[0] += 2
        beats(place, second, 1)
    assert not stuck(read(recorder, 39))


def test_turns_of_a_loop_that_sleeps_get_nothing_on(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, lock: list[int]
) -> None:
    """It looks for a file twice a second, and leaves its line now and then."""
    place = LastPlace(recorder)
    read_place = native.program_place
    spent = [0]

    def turn() -> tuple[bytes, int]:
        lock[0] += 4
        spent[0] += 10**6
        return read_place()[0], spent[0]

    monkeypatch.setattr("hangdoctor.probe.last_place.native", SimpleNamespace(program_place=turn))
    beats(place, 1, 25)
    assert stuck(read(recorder, 25))
    for second in range(26, 28):
        place.beat(second * S)  # at another line
    contents = read(recorder, 27)
    assert contents.place is None and contents.ops.got_on_s >= 26.0


def test_what_lasted_as_long_before_is_no_hang(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, lock: list[int]
) -> None:
    monkeypatch.setattr("hangdoctor.probe.last_place._TURNS_NS", 0)
    place = LastPlace(recorder)
    beats(place, 1, 25)  # a computation in C
    lock[0] += 2
    beats(place, 26, 40)
    contents = read(recorder, 65)
    assert contents.place is not None and contents.place.longest == 24
    assert not stuck(contents)
    beats(place, 66, 20)
    assert stuck(read(recorder, 85))


def test_without_the_interpreters_lock_it_is_work(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, computes: None
) -> None:
    monkeypatch.setattr("hangdoctor.probe.last_place._switches", lambda: None)
    beats(LastPlace(recorder), 1, 30)
    assert not stuck(read(recorder, 30))


def test_a_wait_in_c_leaves_the_interpreters_lock_alone() -> None:
    command = [sys.executable, "-c", LOCK]
    ended = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=60)
    assert ended.stdout == "True\n", ended.stderr


def of_main_thread(release: _thread.LockType, found: list[bytes]) -> None:
    try:
        found.append(native.program_numbers())
    finally:
        release.release()


def waits(found: list[bytes], rank: int, tag: int) -> object:
    huge, yes, ratio, down = 1 << 40, True, 0.5, -3
    until = _thread.allocate_lock()
    until.acquire()
    _thread.start_new_thread(of_main_thread, (until, found))
    until.acquire()  # in C, without the interpreter's lock
    return huge, yes, ratio, down


def test_only_whole_numbers_of_the_innermost_frame_are_read() -> None:
    found: list[bytes] = []
    waits(found, 7, 12)
    assert found == [b"rank=7 tag=12 down=-3 "]
    space: dict[str, object] = {"of_main_thread": of_main_thread, "found": found}
    text = (
        "import _thread\nrank, name, none = 2, 'x', None\nuntil = _thread.allocate_lock()\nuntil.acquire()\n"
        "_thread.start_new_thread(of_main_thread, (until, found))\nuntil.acquire()\n"
    )
    exec(compile(text, "job.py", "exec"), space)
    assert found[1] == b"rank=2 "


@pytest.mark.parametrize(("changed_s", "kind", "peer"), [(0.5, "p2p", 2), (1.5, "code", -1)])
def test_the_line_of_the_program_says_which_call_and_which_peer(
    recorder: Recorder, lock: list[int], tmp_path: Path, changed_s: float, kind: str, peer: int
) -> None:
    """Not where the program has been edited since the rank began, at second 1."""
    file = tmp_path / "solver.py"
    file.write_text(MASTER)
    os.utime(file, (changed_s, changed_s))
    beats(LastPlace(recorder), 1, 30)
    frames = f"collect\t{file}\t3\n<module>\t{file}\t9\n\t\tw=2 rank=0\n"
    recorder.box.put(fmt.H_PLACE, frames.encode())
    contents = read(recorder, 30)
    [sample, *_] = samples_of(contents.box, contents.ops, contents.place, 0.0)
    [collect, module] = sample.threads[0].frames
    place = find_place([collect, module])
    assert (place.kind, place.peer) == (kind, peer) and module.line == 9


def placed(contents: Contents, beside: BoxPlace | None = None) -> list[bool]:
    """Which of two ranks have a place: this one, and one whose box is the same, or has another place."""
    other = structs.replace(contents, ops=structs.replace(contents.ops, rank=1))
    other.place = beside or contents.place
    ranks = [RankCapture(pid=c.box.pid, rank=c.ops.rank) for c in (contents, other)]
    capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=2)
    add_places(capture, [contents, other])
    return [bool(rank.samples) for rank in capture.ranks()]


@pytest.mark.parametrize(
    ("line", "beaten", "expected"),
    [
        ("world.Recv(buffer, source=w)", 12, True),
        ("world.Recv(buffer, source=w)", 7, False),
        ("np.linalg.svd(buffer)", 12, False),
    ],
)
def test_where_all_are_in_calls_that_communicate_less_time_is_enough(
    recorder: Recorder, lock: list[int], tmp_path: Path, line: str, beaten: int, expected: bool
) -> None:
    """A computation of the same length is one."""
    file = tmp_path / "solver.py"
    file.write_text(f"def collect(world):\n    for w in range(1, 4):\n        {line}\n")
    os.utime(file, (0.5, 0.5))
    recorder.box.put(fmt.H_RANK, 0)
    beats(LastPlace(recorder), 1, beaten)
    frames = f"collect\t{file}\t3\n<module>\t{file}\t9\n\t\tw=2 rank=0\n"
    recorder.box.put(fmt.H_PLACE, frames.encode())
    assert placed(read(recorder, beaten)) == [expected, expected]


@pytest.mark.parametrize(("state", "runnable", "expected"), [("S", 0, True), ("R", 6, False)])
def test_who_sleeps_beside_one_in_such_a_call_has_a_place_too(
    recorder: Recorder, lock: list[int], tmp_path: Path, state: str, runnable: int, expected: bool
) -> None:
    """As in a write to a pipe that nothing reads; who computes may be done in a moment."""
    file = tmp_path / "solver.py"
    file.write_text("def collect(world):\n    world.Barrier()\n    child.stdin.write(packed)\n")
    os.utime(file, (0.5, 0.5))
    recorder.box.put(fmt.H_RANK, 0)
    beats(LastPlace(recorder), 1, 12)
    recorder.box.put(fmt.H_PLACE, f"collect\t{file}\t2\n<module>\t{file}\t9\n".encode())
    contents = read(recorder, 12)
    assert contents.place is not None
    writes = [structs.replace(contents.place.frames[0], line=3), contents.place.frames[1]]
    beside = structs.replace(contents.place, frames=writes, idle_cpu_s=0.0)
    beside.state, beside.runnable = state, runnable
    assert placed(contents, beside) == [expected, expected]


def test_who_worked_until_the_end_while_all_others_waited_is_what_they_waited_for(
    recorder: Recorder, lock: list[int], tmp_path: Path
) -> None:
    """Its box has no place, since it got on by every heartbeat."""
    file = tmp_path / "fit.py"
    file.write_text("def fit(comm):\n    comm.Allreduce(gradient, total)\n")
    os.utime(file, (0.5, 0.5))
    beats(LastPlace(recorder), 1, 30)
    recorder.box.put(fmt.H_PLACE, f"fit\t{file}\t2\n<module>\t{file}\t9\n".encode())
    waits = read(recorder, 30)

    def said(got_on_s: float, waiting: int = 2) -> list[tuple[str, list[int]]]:
        ops = structs.replace(waits.ops, rank=waiting, got_on_s=got_on_s)
        box = structs.replace(waits.box, heartbeat_s=got_on_s)
        works = structs.replace(waits, box=box, ops=ops, place=None)
        others = [
            structs.replace(waits, ops=structs.replace(waits.ops, rank=r)) for r in range(waiting)
        ]
        world = waiting + 1
        ranks = [
            RankCapture(pid=c.box.pid, rank=c.ops.rank, world_size=world) for c in [*others, works]
        ]
        capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=world, over=True)
        ends = [ended(rank, -15, 30.1) for rank in range(world)]
        capture.origin = "files"
        capture.logs = ended_ranks.facts_of([*others, works], ends)
        add_places(capture, [*others, works])
        return [(cause.kind, cause.ranks) for cause in diagnose(capture).causes]

    assert said(got_on_s=29.0) == [("busy", [2])]
    assert said(got_on_s=12.0) == [], "nothing shows that it worked until the end"
    assert said(29.0, waiting=1) == [], "one that waits for one"
