"""The stacks of a rank's threads beside its box: written while nothing gets on, read after its end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hangdoctor.model.frame import Frame
from hangdoctor.probe import format as fmt
from hangdoctor.probe.box import BoxWriter
from hangdoctor.probe.last_stacks import LastStacks
from hangdoctor.probe.record_core import native
from hangdoctor.readers.box_stacks import KeptStacks, others, stacks_beside, whole
from hangdoctor.stacks.amounts import AMOUNT

pytestmark = pytest.mark.skipif(
    not hasattr(native, "program_stacks"), reason="the extension does not know the frames"
)
OLDEST = 2e9  # a rank that began after any change of this file


class Job:
    """A process whose main thread is in a loop, with one beside it at a lock."""

    def __init__(self, tmp_path: Path) -> None:
        self.box = BoxWriter(tmp_path, "a-job", 1 << 20)
        self.stacks = LastStacks(self.box)
        self.held = threading.Lock()
        self.waits = threading.Event()
        self.held.acquire()
        self.beside = threading.Thread(target=self.upload, name="uploader")
        self.beside.start()
        assert self.waits.wait(60)

    def upload(self) -> None:
        self.waits.set()
        with self.held:
            pass

    def step(self, n_micro: int, during: Callable[[], None]) -> None:
        """As the heartbeat sees it, from a thread of its own."""
        kept, secret = [None] * 3, "a password"
        for _ in range(n_micro):
            thread = threading.Thread(target=during)
            thread.start()
            thread.join()
            assert kept and secret
            return

    def beats(self, *counts: int, n_micro: int = 6) -> None:
        self.step(n_micro, lambda: [self.stacks.idle(count) for count in counts] and None)

    def read(self, began_s: float = OLDEST) -> KeptStacks | None:
        return stacks_beside(self.box.path, began_s)

    def end(self) -> None:
        self.held.release()
        self.beside.join()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    yield made
    made.end()


def test_they_are_there_from_the_fourth_beat_and_who_stood_still_is_known_from_the_eighth(
    job: Job,
) -> None:
    job.beats(1, 2, 3)
    assert job.read() is None
    job.beats(4)
    first = job.read()
    assert first is not None and not first.still
    job.stacks.got_on()
    job.beats(4, 5, 6, 7, 8)
    kept = job.read()
    assert kept is not None
    beside = {thread.tid: thread for thread in others(kept, os.getpid())}
    thread = beside[job.beside.native_id or 0]
    assert thread.name == "uploader"
    assert [f.own_name for f in thread.frames][:2] == ["upload", "run"]


def test_of_one_at_work_they_are_written_now_and_then(job: Job) -> None:
    job.step(6, lambda: [job.stacks.at_work(beats) for beats in range(1, 8)] and None)
    assert job.read() is None
    job.step(6, lambda: job.stacks.at_work(8))
    assert job.read() is not None


def test_of_variables_whole_numbers_and_lengths_are_kept(job: Job) -> None:
    job.beats(4)
    kept = job.read()
    assert kept is not None
    main = next(t for t in kept.threads if t.tid == os.getpid())
    assert main.name == "MainThread"
    step = next(f for f in main.frames if f.own_name == "step")
    assert step.values[AMOUNT + "n_micro"] == 6 and step.code.startswith("thread.")
    raw = job.box.path.with_suffix(fmt.STACKS_SUFFIX).read_bytes()
    assert b"kept=[3]" in raw and b"password" not in raw


def test_a_place_gets_its_rounds_and_the_frames_around_it(job: Job) -> None:
    job.beats(4)
    kept = job.read()
    assert kept is not None
    main = next(t for t in kept.threads if t.tid == os.getpid())
    inner = next(f for f in main.frames if f.own_name == "step")
    place = [Frame("step", inner.file, inner.line)]
    found = whole(place, kept, os.getpid())
    [own] = [f for f in found if f.own_name == "step"]
    assert own.name == "step" and own.values == {AMOUNT + "n_micro": 6}
    assert len(found) == len(main.frames)
    moved = [Frame("step", inner.file, inner.line + 1)]
    assert whole(moved, kept, os.getpid()) == moved


def test_nothing_is_believed_of_a_program_that_was_changed_since(job: Job) -> None:
    job.beats(4)
    assert job.read(began_s=1.0) is None


@pytest.mark.parametrize("cut", [3, 12, 40])
def test_a_file_that_was_cut_is_none(job: Job, cut: int) -> None:
    job.beats(4)
    path = job.box.path.with_suffix(fmt.STACKS_SUFFIX)
    path.write_bytes(path.read_bytes()[:cut])
    assert job.read() is None
    path.write_bytes(fmt.STACKS_MAGIC + b"\xff" * 64)
    assert job.read() is None
