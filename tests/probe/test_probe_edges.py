"""Edges of the probe's small parts, where changed code passed: limits, order, links. No torch."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from hangdoctor.probe import (
    call_forms,
    identity,
    odd_calls,
    process_probe,
    retention,
    signatures,
    steps,
    still_written,
    torchnames,
    wrap_waits,
)
from hangdoctor.probe import folder as folders
from hangdoctor.probe import format as fmt
from hangdoctor.probe.box import BoxWriter
from hangdoctor.probe.calls import format as calls_fmt
from hangdoctor.probe.calls import request
from hangdoctor.probe.calls import ring as calls_ring
from hangdoctor.probe.calls.ring import Ring
from hangdoctor.probe.calls.tracer import Tracer
from hangdoctor.probe.group_table import GroupEntry, Groups
from hangdoctor.probe.identity import start_ticks
from hangdoctor.probe.process_probe import probe
from hangdoctor.probe.record_core import Thread
from hangdoctor.probe.recorder import Recorder, local
from hangdoctor.probe.still_written import has_writer

MIB = 1 << 20
HOUR_NS = 3600 * 10**9


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BoxWriter:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    return BoxWriter(tmp_path, "a-job", MIB)


def put(box: BoxWriter, place: tuple[int, str]) -> int:
    return folders.field(box.map[: fmt.HEADER_BYTES], place)


# --------------------------------------------------------------------------- the box


def test_a_threads_name_has_all_of_its_room_but_one_byte(box: BoxWriter) -> None:
    word = box.add_thread(0, 7, "n" * 40)
    *_, name = fmt.THREAD.unpack_from(box.map, word * 8)
    assert name == b"n" * 31 + b"\0"


def test_an_entry_has_no_check_while_it_changes(
    box: BoxWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, _, width = box.regions["groups"]
    checks: list[int] = []

    class Watched:
        """Notes the check that is there when an entry is written."""

        @staticmethod
        def pack_into(into: Any, at: int, *fields: Any) -> None:
            checks.append(
                int.from_bytes(into[at + fmt.GROUP_CHECK : at + fmt.GROUP_CHECK + 4], "little")
            )
            real.pack_into(into, at, *fields)

    real = fmt.GROUP
    monkeypatch.setattr(fmt, "GROUP", Watched)
    monkeypatch.setitem(box.regions, "groups", (begin, 1, width))
    box.end_group(box.add_group("11" * 8, 2, "0-1", "", 0))
    assert box.map[begin + fmt.GROUP_CHECK : begin + width].rstrip(b"\0")
    assert box.add_group("22" * 8, 2, "0-1", "", 1) == 0, "the entry of the group that ended"
    assert checks == [0, 0]


def test_a_signature_that_is_too_long_for_the_table_lies_in_its_record(box: BoxWriter) -> None:
    before = bytes(box.map[fmt.INLINE_OFFSET + fmt.INLINE_BYTES : 4096])
    box.inline(0, "x" * 100)
    assert box.map[fmt.INLINE_OFFSET : fmt.INLINE_OFFSET + fmt.INLINE_BYTES] == b"x" * 48
    assert bytes(box.map[fmt.INLINE_OFFSET + fmt.INLINE_BYTES : 4096]) == before


def test_the_shortest_known_timeout_counts(box: BoxWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups(box)
    for told, kept in ((0.0, 0), (5.0, 5000), (0.0, 5000), (-1.0, 5000), (7.0, 5000), (0.5, 500)):
        monkeypatch.setattr(torchnames, "group_timeout_s", lambda pg, told=told: told)
        groups._note_timeout(None)
        assert put(box, fmt.H_TIMEOUT_MS) == kept, told


def test_an_exception_of_the_jobs_in_the_second_attempt_is_the_jobs() -> None:
    """The first one was ours: a parameter that this file does not know."""

    def describe(tensor: object) -> Any:
        raise ValueError("from a handler of the job's")

    space: dict[str, Any] = {"describe": describe}
    code = "try:\n    describe(1, 2)\nexcept TypeError as error:\n    kept = error"
    exec(compile(code, signatures.__file__, "exec"), space)
    with pytest.raises(ValueError, match="of the job's"):
        odd_calls.describe_otherwise(describe, (1, 2), {}, space["kept"])


def test_what_is_counted_by_name_and_a_boot_without_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry, other = (GroupEntry(n, [0, 1]) for n in range(2))
    assert [entry.next_named(n) for n in ("new_group", "barrier", "new_group")] == [1, 1, 2]
    assert other.next_named("new_group") == 1
    assert len(identity.boot_id()) == 16 and any(identity.boot_id())
    for text in ("not a number", "é"):
        monkeypatch.setattr(identity.Path, "read_text", lambda *_, said=text: said)
        assert identity.boot_id() == bytes(16)


def test_an_operation_without_defaults_has_a_form() -> None:
    def later(tensor: Any, group: Any) -> signatures.Described:
        raise NotImplementedError

    names, form = call_forms.form_of(later, 0)
    assert (names, form["required"], form["group"]) == (("tensor", "group"), 2, 1)


def test_a_heartbeat_that_meets_a_stand_in_of_the_jobs_says_nothing_and_goes_on(
    box: BoxWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test of the job's may forbid `open` for a while; no code of the job waits for our thread."""
    monkeypatch.setattr(process_probe, "_BEAT_S", 0.001)
    one, beats = process_probe.Probe(), process_probe.Beats()
    heard = 0

    def lstat(path: object) -> None:
        nonlocal heard
        heard += 1
        if heard == 1:
            raise AssertionError("this test opens no files")
        beats.stop.release()
        raise FileNotFoundError(2, "none")

    monkeypatch.setattr(folders.Path, "lstat", lstat)
    box.put(fmt.H_BEAT_WALL, 1)
    one._beat(
        types.SimpleNamespace(box=box, groups=Groups(box), uncounted=False, polls=False), beats
    )  # type: ignore[arg-type]
    assert (heard, one.broken, beats.stopped.locked()) == (2, False, False)
    assert put(box, fmt.H_BEAT_WALL) > 1


@pytest.mark.parametrize("name", ["os.open", "os.stat", "os.getpid", "io.open"])
def test_while_the_job_has_stand_ins_for_system_calls_nothing_is_begun(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(process_probe.Probe, "_make", lambda self: made.append("box"))
    one = process_probe.Probe()
    for stand_in in (lambda *_: 3, mock.MagicMock()):
        with mock.patch(name, stand_in):
            assert one.begin() is None and made == []
            one.fail(_of_ours())
            assert one.broken
            one.broken = False
    one.begin()
    assert made == ["box"], "now it begins"


def _of_ours() -> Exception:
    try:
        exec(compile("1 / 0", signatures.__file__, "exec"))
    except ZeroDivisionError as error:
        assert error.__traceback__ is not None
        return error.with_traceback(error.__traceback__.tb_next)
    raise AssertionError


def test_joining_a_group_with_stand_ins_leaves_files_alone(
    box: BoxWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched: list[str] = []
    for owner, what in ((folders, "prune"), (process_probe.flight, "start_worker_server")):
        monkeypatch.setattr(owner, what, lambda *_, what=what: touched.append(what) or "")
    monkeypatch.setattr(
        process_probe.Probe, "_show_life", lambda self, recorder: touched.append("life")
    )
    monkeypatch.setattr(signatures, "learn_torch", lambda: None)
    monkeypatch.setattr(torchnames, "own_rank", lambda: (0, 1))
    learned = types.SimpleNamespace(box=box, learn_world=lambda: touched.append("world"))
    with mock.patch("os.open", lambda *_: 3):
        process_probe.Probe().joined(learned)  # type: ignore[arg-type]
    assert touched == ["world", "life"]
    touched.clear()
    process_probe.Probe().joined(learned)  # type: ignore[arg-type]
    assert touched == ["world", "prune", "life", "start_worker_server"]


# --------------------------------------------------------------------------- folders, ended runs


def test_threads_are_had_for_a_moment_and_refused_where_a_limit_is_near() -> None:
    """In a process of its own: a limit of memory stays."""
    done = subprocess.run(
        [sys.executable, "-c", FEW_THREADS], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["True", "1", "False", "1"], done.stderr


FEW_THREADS = """
import os, resource
from hangdoctor.probe.own_threads import can_have
print(can_have(10), len(os.listdir("/proc/self/task")))
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (24 << 20), -1))  # two stacks, not ten
print(can_have(10), len(os.listdir("/proc/self/task")))
"""


def test_without_shared_memory_the_temporary_folder_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders.os, "access", lambda *asked: False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert folders.root() == tmp_path / f"hangdoctor-{os.getuid()}"
    monkeypatch.delenv("TMPDIR")
    assert folders.root() == Path("/tmp") / f"hangdoctor-{os.getuid()}"


def test_a_predecessors_box_that_is_still_written_stays(box: BoxWriter, tmp_path: Path) -> None:
    """Its process is not found by number, as one in another container."""
    host = box.path.name.rpartition("-")[0]
    head = bytearray(box.map[: fmt.HEADER_BYTES])
    head[fmt.H_STARTED_TICKS[0] : fmt.H_STARTED_TICKS[0] + 8] = (1).to_bytes(8, "little")
    dead = [tmp_path / f"{host}-{900000 + i}{fmt.SUFFIX}" for i in range(3)]
    for number, path in enumerate(dead):
        path.write_bytes(head)
        os.utime(path, (number, number))
    with dead[0].open("r+b"):
        folders.prune(tmp_path, rank=3, host=host)
        assert [path.exists() for path in dead] == [True, False, True]


def run(root: Path, name: str) -> retention.Ended:
    folder = root / name
    folder.mkdir()
    file = folder / f"host-1{fmt.SUFFIX}"
    file.write_bytes(b"x" * MIB)
    return retention.Ended(folder, [file], 0)


@pytest.mark.parametrize(
    ("share", "left"), [(0.8, ["newest", "second"]), (0.5, ["newest"]), (0.1, ["newest"])]
)
def test_so_many_go_as_must_and_never_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, left: list[str]
) -> None:
    ended = [run(tmp_path, name) for name in ("newest", "second", "third")]
    full = types.SimpleNamespace(f_bavail=0, f_frsize=4096)
    monkeypatch.setattr(retention.os, "statvfs", lambda root: full)
    monkeypatch.setattr(retention, "SHARE", share)
    monkeypatch.setattr(retention, "SHARE_OF_NEWEST", share)
    retention._remove_oldest(tmp_path, ended, now_ns=24 * HOUR_NS)
    assert sorted(p.name for p in tmp_path.iterdir()) == left


def test_links_are_not_followed(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("x")
    link.symlink_to(file)
    assert (has_writer(file), has_writer(link)) == (False, None)
    request.write(tmp_path, request.Request(1, True))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / request.NAME).symlink_to(tmp_path / request.NAME)
    assert request.read(tmp_path) is not None and request.read(elsewhere) is None


def test_whoever_opens_a_file_that_is_looked_at_makes_no_signal_that_ends_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's own choice would be SIGIO, which ends a process that does not expect it."""
    asked: list[tuple[int, int]] = []
    real = still_written.fcntl.fcntl

    def note(fd: int, command: int, value: int) -> int:
        asked.append((command, value))
        return real(fd, command, value)

    monkeypatch.setattr(still_written.fcntl, "fcntl", note)
    (tmp_path / "file").write_text("x")
    before = len(os.listdir("/proc/self/fd"))
    assert has_writer(tmp_path / "file") is False
    lease = still_written.fcntl.F_SETLEASE
    assert asked[:2] == [(10, signal.SIGURG), (lease, still_written.fcntl.F_RDLCK)]
    assert len(os.listdir("/proc/self/fd")) == before


def test_runs_that_lie_in_a_place(tmp_path: Path) -> None:
    """Ended ones as such, those of a rank that may live as None, what is not ours not at all."""
    now = time.time_ns()
    for name, ticks in (("ended", 1), ("lives", start_ticks())):
        (tmp_path / name).mkdir()
        local.thread = Thread()
        made = BoxWriter(tmp_path / name, name, 1 << 20)
        made.put(fmt.H_STARTED_TICKS, ticks)
        if name == "ended":
            content = made.path.read_bytes()
            made.path.unlink()
            made.path.write_bytes(content)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").touch()
    (tmp_path / "link").symlink_to(tmp_path / "ended")
    (tmp_path / "file").touch()
    found = retention.runs(tmp_path, now)
    assert [folder.name for folder, _ in found] == ["ended", "lives"]
    assert [run is not None and len(run.files) for _, run in found] == [1, False]
    if os.geteuid() == 0:
        for name in ("ended", "lives"):
            os.chown(tmp_path / name, 65_533, -1)
        assert retention.runs(tmp_path, now) == []


def test_sockets_alone_are_discarded(tmp_path: Path) -> None:
    import socket

    path = tmp_path / "made.sock"
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
    folders.discard_socket(path)
    assert not path.exists()
    path.write_text("theirs")
    folders.discard_socket(path)
    assert path.read_text() == "theirs"
    folders.discard_socket(tmp_path / "nothing")


# --------------------------------------------------------------------------- calls


@pytest.fixture
def ring(box: BoxWriter) -> Ring:
    return Ring(box.path, calls_fmt.MIN_BYTES, 3, 4)


def test_the_file_of_calls_is_private_and_begins_with_the_place_that_is_none(ring: Ring) -> None:
    assert ring.path.stat().st_mode & 0o777 == 0o600
    begin, _, _ = ring.regions["codes"]
    assert ring.code_id("?", "?", 0, "") == calls_fmt.NO_CODE
    assert calls_fmt.CODE.unpack_from(ring.map, begin)[3] == 0


def test_a_ring_begins_stopped_and_without_an_iteration(ring: Ring) -> None:
    data = ring.path.read_bytes()

    def header(place: tuple[int, str]) -> object:
        return struct.unpack_from(place[1], data, place[0])[0]

    assert header(calls_fmt.H_STATE) == calls_fmt.STOPPED
    assert header(calls_fmt.H_FROM_ITERATION) == -1
    assert (header(calls_fmt.H_RANK), header(calls_fmt.H_WORLD)) == (3, 4)
    assert header(calls_fmt.H_PID) == os.getpid()


def test_a_ring_goes_on_behind_what_is_written(ring: Ring) -> None:
    """The extension counts in the file alone."""
    head = calls_fmt.H_HEAD[0] // 8
    for _ in range(3):
        ring.put(1, 0, 0)
    assert ring.words[head] == 3
    ring.words[head] = 10
    ring.resume()
    ring.put(1, 0, 0)
    assert ring.words[head] == 11


def test_where_there_is_no_room_for_a_ring_nothing_stays(
    box: BoxWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(fd: int, size: int) -> None:
        raise OSError(28, "no room")

    monkeypatch.setattr(calls_ring, "reserve", none)
    before = sorted(box.path.parent.iterdir()), len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="no room"):
        Ring(box.path, calls_fmt.MIN_BYTES, 3, 4)
    assert (sorted(box.path.parent.iterdir()), len(os.listdir("/proc/self/fd"))) == before


def test_a_thread_has_the_jobs_name_for_it_or_the_kernels() -> None:
    seen: list[str] = []

    def say() -> None:
        seen.append(calls_ring._name())

    thread = threading.Thread(target=say, name="loader-7")
    thread.start()
    thread.join()
    done = threading.Event()
    _thread.start_new_thread(lambda: (say(), done.set()), ())
    assert done.wait(30)
    assert seen == ["loader-7", Path("/proc/self/comm").read_text().strip()]


def test_what_functions_held_when_tracing_began_goes_when_they_return() -> None:
    """Tensors, files: many jobs let the collector of circles run rarely or never."""

    class Held:
        pass

    one = Tracer.__new__(Tracer)
    one.ring = None
    entered, over = threading.Event(), threading.Event()
    refs: list[weakref.ref[Held]] = []

    def elsewhere() -> None:
        held = Held()
        refs.append(weakref.ref(held))
        entered.set()
        assert over.wait(30)

    def here() -> None:
        held = Held()
        refs.append(weakref.ref(held))
        one._write_open_frames(types.SimpleNamespace(put=None))  # type: ignore[arg-type]

    thread = threading.Thread(target=elsewhere)
    thread.start()
    assert entered.wait(30)
    gc.disable()
    try:
        here()
        over.set()
        thread.join(30)
        assert [ref() for ref in refs] == [None, None]
    finally:
        gc.enable()
        over.set()


def test_a_place_keeps_its_number(ring: Ring) -> None:
    first = ring.code_id("a.py", "f", 1, "a")
    assert (first, ring.code_id("a.py", "f", 1, "a"), ring.code_id("a.py", "f", 2, "a")) == (
        1,
        1,
        2,
    )


# --------------------------------------------------------------------------- steps of optimizers


@pytest.fixture
def recorded(box: BoxWriter, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """A recorder that the probe takes for its own, and no hook of an earlier test."""
    before, local.thread = local.thread, Thread()
    monkeypatch.setattr(steps, "_watched", False)
    monkeypatch.setattr(steps, "_is_compiling", steps._never)
    made = probe.recorder = Recorder(box)
    yield made
    probe.recorder = None
    local.thread = before


def fake_torch(
    monkeypatch: pytest.MonkeyPatch, compiling: bool | None
) -> list[Callable[..., None]]:
    """A torch that registers hooks, and may have a compiler that says whether it traces now."""
    hooks: list[Callable[..., None]] = []
    optimizer = types.ModuleType("torch.optim.optimizer")
    optimizer.register_optimizer_step_post_hook = hooks.append  # type: ignore[attr-defined]
    torch = types.ModuleType("torch")
    if compiling is not None:
        compiler = types.SimpleNamespace(is_compiling=lambda: compiling)
        torch.compiler = compiler  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.optim.optimizer", optimizer)
    return hooks


@pytest.mark.parametrize(("compiling", "counted"), [(False, 2), (None, 2), (True, 0)])
def test_steps_are_counted_once_each_unless_they_are_traced(
    recorded: Recorder, monkeypatch: pytest.MonkeyPatch, compiling: bool | None, counted: int
) -> None:
    hooks = fake_torch(monkeypatch, compiling)
    steps.watch()
    steps.watch()
    assert len(hooks) == 1
    for _ in range(2):
        hooks[0](None, (), {})
    assert (recorded.steps, put(recorded.box, fmt.H_STEPS)) == (counted, counted)
    assert bool(put(recorded.box, fmt.H_STEP_SINCE)) == bool(counted)


def test_a_torch_without_such_hooks_is_left_alone(
    recorded: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.optim.optimizer", types.ModuleType("empty"))
    steps.watch()
    assert recorded.steps == 0 and not steps._watched


def test_what_the_job_counts_lies_in_the_header(recorded: Recorder) -> None:
    """The first by way of Python, which learns of the thread; the others by the extension."""
    for number in (7, 8, 1 << 40, -3):
        probe.set_iteration(number)
        probe.set_micro_batch(number + 1)
        assert put(recorded.box, fmt.H_ITERATION) == number
        assert put(recorded.box, fmt.H_MICRO_BATCH) == number + 1
        assert recorded.iteration == (number if number < 1 << 31 else -1)
    since = put(recorded.box, fmt.H_ITERATION_SINCE)
    probe.set_iteration(9)
    assert put(recorded.box, fmt.H_ITERATION_SINCE) > since
    probe.set_iteration(1 << 70)
    assert put(recorded.box, fmt.H_ITERATION) == -1


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a bare raise brings the frame back")
def test_the_traceback_of_the_jobs_own_error_has_no_frame_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("the job's")

    monkeypatch.setattr(wrap_waits.probe, "recorder", None)
    for wrapped in (wrap_waits.handle_wait(fails), wrap_waits.handle_wait(int)):
        with pytest.raises(ValueError) as raised:
            wrapped("no number")
        files = [Path(frame.path).name for frame in raised.traceback]
        assert set(files) == {"test_probe_edges.py"}, files
