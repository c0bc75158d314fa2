"""The hot path's classes in pure Python, as where no compiler was there; the extension's are the same."""

from __future__ import annotations

import importlib.util
import mmap
import os
import signal
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hangdoctor.probe import own_threads, record_core


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


STREAMS = """
import os, sys
from hangdoctor.probe import own_threads
spare = os.open("/dev/null", os.O_RDONLY)
for closed in ((0,), (1, 2), (0, 1, 2), ()):
    kept = {fd: os.dup(fd) for fd in closed}
    for fd in closed:
        os.close(fd)
    with own_threads.streams_taken(spare):
        made = os.open("/dev/null", os.O_RDONLY)
    left = [fd for fd in closed if os.path.exists(f"/proc/self/fd/{fd}")]
    os.close(made)
    for fd, copy in kept.items():
        os.dup2(copy, fd)
        os.close(copy)
    print(made > 2, left, len(os.listdir("/proc/self/fd")))
"""


def test_a_descriptor_of_ours_has_no_number_of_a_stream() -> None:
    import subprocess

    root = str(Path(__file__).parents[2])
    words = [sys.executable, "-S", "-c", STREAMS]
    ended = subprocess.run(
        words, env={"PYTHONPATH": root}, stdin=subprocess.DEVNULL, capture_output=True, timeout=30
    )
    lines = ended.stdout.decode().splitlines()
    assert len(set(lines)) == 1 and lines[0].startswith("True [] "), ended
    assert len(lines) == 4, ended.stderr


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
