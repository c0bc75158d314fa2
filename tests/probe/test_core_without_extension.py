"""The hot path's classes in pure Python, as where no compiler was there; the extension's are the same."""

from __future__ import annotations

import errno
import importlib.util
import mmap
import os
import signal
import threading
import types
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hangdoctor.probe import own_threads, process_probe, record_core
from hangdoctor.probe.calls import tracer


def pure() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "hangdoctor.probe.record_core_pure", record_core.__file__
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    os.environ["HANGDOCTOR_RECORD_PURE"] = "1"
    try:
        spec.loader.exec_module(module)
    finally:
        del os.environ["HANGDOCTOR_RECORD_PURE"]
    assert module.native is None
    return module


PURE = pure()


@pytest.fixture(params=["pure", "native"])
def core(request: pytest.FixtureRequest) -> Any:
    if request.param == "native" and record_core.native is None:
        pytest.skip("the extension was not built")
    return PURE if request.param == "pure" else record_core


def test_sends_and_receives_are_counted_by_peer_and_direction(core: Any) -> None:
    entry, other = core.Entry(), core.Entry()
    counts = [entry.next_directed(peer, way) for peer, way in ((1, 2), (1, 2), (1, 4), (0, 2))]
    assert counts == [1, 2, 1, 1] and other.next_directed(1, 2) == 1


def test_a_thread_begins_outside_of_any_operation(core: Any) -> None:
    thread = core.Thread()
    seen = (thread.depth, thread.recorder, thread.index, thread.word, thread.coalesced)
    assert seen == (0, None, 0, 0, None)
    if core is PURE:
        with pytest.raises(AttributeError):
            thread.more = 1  # one of a million: it has no dictionary


def test_serial_numbers_begin_with_one() -> None:
    ring = PURE.Core()
    with mmap.mmap(-1, 4096) as box:
        ring.attach(box, 0, 8)
    assert [ring.next_serial() for _ in range(3)] == [1, 2, 3]


def test_what_the_job_counts_is_learned_where_something_is_recorded() -> None:
    class Told(PURE.Holder):  # type: ignore[misc, name-defined]
        recorder: Any = None

        def __init__(self) -> None:
            self.said: list[object] = []
            self.learn_iteration = lambda n: self.said.append(("iteration", n))
            self.learn_micro_batch = lambda n: self.said.append(("micro-batch", n))
            self.learn_step = lambda: self.said.append("step")

    told = Told()
    told.set_iteration(3)
    told.set_micro_batch(4)
    told.step()
    assert told.said == [("iteration", 3), ("micro-batch", 4)]
    told.recorder = object()
    told.step()
    assert told.said[-1] == "step"


# --------------------------------------------------------------------------- threads, descriptors


def test_a_thread_of_ours_takes_no_signals_and_has_a_stack_of_its_own() -> None:
    seen: list[object] = []
    ended = threading.Event()

    def work(first: str, second: int) -> None:
        seen.extend((first, second, signal.pthread_sigmask(signal.SIG_BLOCK, set())))
        ended.set()

    before = threading.stack_size(1 << 16)
    try:
        own_threads.start_thread(work, ("a", 2))
        assert ended.wait(30) and threading.stack_size() == 1 << 16, "the job's own stays"
    finally:
        threading.stack_size(before)
    first, second, blocked = seen
    assert (first, second) == ("a", 2)
    assert isinstance(blocked, set)
    assert signal.SIGTERM in blocked and signal.SIGUSR1 in blocked
    assert not {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT} & blocked
    assert signal.SIGUSR1 not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


def keeps_streams_free() -> None:
    """Ends the process; a number other than 0 says which streams were closed."""
    spare = os.open(os.devnull, os.O_RDONLY)
    for code, closed in enumerate(((0,), (1, 2), (0, 1, 2), ()), 1):
        kept = {fd: os.dup(fd) for fd in closed}
        for fd in closed:
            os.close(fd)
        before = len(os.listdir("/proc/self/fd"))
        with own_threads.streams_taken(spare):
            made = os.open(os.devnull, os.O_RDONLY)
        left = [fd for fd in closed if Path(f"/proc/self/fd/{fd}").exists()]
        os.close(made)
        if made <= 2 or left or len(os.listdir("/proc/self/fd")) != before:
            os._exit(code)
        for fd, copy in kept.items():
            os.dup2(copy, fd)
    os._exit(0)


def test_a_descriptor_of_ours_has_no_number_of_a_stream() -> None:
    pid = os.fork()
    if pid == 0:
        try:
            keeps_streams_free()
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def space(monkeypatch: pytest.MonkeyPatch, free: int, blocks: int = 1000) -> None:
    found = types.SimpleNamespace(f_bavail=free // 4096, f_frsize=4096, f_blocks=blocks)
    monkeypatch.setattr(own_threads.os, "fstatvfs", lambda fd: found)
    monkeypatch.setattr(own_threads.os, "statvfs", lambda path: found)


def test_no_file_of_ours_takes_more_than_half_of_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container has 64 MB of shared memory, and the job's own share of it ends in SIGBUS."""
    with (tmp_path / "file").open("wb") as file:
        space(monkeypatch, 4 * 8192 - 1)
        with pytest.raises(OSError, match="No space") as refused:
            own_threads.reserve(file.fileno(), 2 * 8192)
        assert refused.value.errno == errno.ENOSPC
        assert os.fstat(file.fileno()).st_size == 0
        for free, blocks in ((4 * 8192, 1000), (0, 0)):  # some file systems do not say
            space(monkeypatch, free, blocks)
            own_threads.reserve(file.fileno(), 2 * 8192)


@pytest.mark.parametrize(
    ("free_mb", "asked", "ring_mb"),
    [(1024, None, 16), (512, None, 16), (64, None, 2), (8, None, 1), (64, 20.0, 20)],
)
def test_where_little_is_free_a_ring_is_smaller_unless_its_size_was_asked_for(
    free_mb: int, asked: float | None, ring_mb: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight ranks make theirs at once."""
    monkeypatch.delenv(tracer.SIZE_VARIABLE, raising=False)
    space(monkeypatch, free_mb << 20)
    assert tracer.ring_bytes(Path("/anywhere"), asked) == int(ring_mb * (1 << 20))
    monkeypatch.setenv(tracer.SIZE_VARIABLE, "3")
    assert tracer.ring_bytes(Path("/anywhere"), asked) == int((asked or 3) * (1 << 20))


@pytest.mark.parametrize(
    ("free_mb", "told", "box_mb"),
    [(1024, "", 4), (128, "", 4), (64, "", 2), (8, "", 1), (8, "6", 6)],
)
def test_where_little_is_free_a_box_is_smaller_unless_its_size_was_asked_for(
    free_mb: int, told: str, box_mb: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANGDOCTOR_BOX_MB", told)
    space(monkeypatch, free_mb << 20)
    assert process_probe._box_bytes(Path("/anywhere")) == box_mb << 20


def test_room_is_had_at_once_or_refused(tmp_path: Path) -> None:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with (tmp_path / "file").open("wb") as file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
        try:
            assert own_threads._largest_file() == 8192
            with pytest.raises(OSError, match="too large"):
                own_threads.reserve(file.fileno(), 8193)
            own_threads.reserve(file.fileno(), 8192)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert os.fstat(file.fileno()).st_blocks * 512 >= 8192
    assert limits[0] != resource.RLIM_INFINITY or own_threads._largest_file() == float("inf")
