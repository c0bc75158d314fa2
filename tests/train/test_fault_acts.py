"""The library of faults: each act does on a real process what its name says, and takes back what it made."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from hangdoctor.train.faults import acts
from tests.support.acting import ROOT, Acting, acting
from tests.support.stage import interrupt, wait_until


def feed(path: Path | str) -> None:
    with Path(path).open("wb") as fifo:
        fifo.write(b"x")


def drain(path: Path | str) -> None:
    with Path(path).open("rb") as fifo:
        fifo.read(1 << 20)


def pipe_ends(pid: int, way: int) -> list[str]:
    """Its pipes that are open to read or to write, beside standard output."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        is_pipe = int(entry.name) > 2 and str(entry.readlink()).startswith("pipe:")
        flags = int(Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text().split()[3], 8)
        if is_pipe and flags & os.O_ACCMODE == way:
            found.append(str(entry))
    return found


FIFO = "(here / 'fifo',)"
# act -> its arguments, and the call that it is seen in
BLOCKING = {
    "sleep": ("()", "sleep"),
    "read_pipe": ("()", "read_pipe"),
    "write_pipe": ("()", "write_pipe"),
    "read_fifo": (FIFO, "read_fifo"),
    "open_fifo": (FIFO, "open_fifo"),
    "write_fifo": (FIFO, "write_fifo"),
    "lock_file_twice": ("(here / 'lock',)", "lock_file_twice"),
    "put_into_full_queue": ("()", "put"),
    "lock_twice": ("()", "lock_twice"),
    "lock_of_a_thread": ("()", "lock_of_a_thread"),
    "fork_with_lock": ("()", "fork_with_lock"),
    "dead_child": ("()", "dead_child"),
    "stopped_child": ("()", "stopped_child"),
    "endless_command": ("()", "endless_command"),
}
ALONE = {
    "delay",
    "spin",
    "hold_gil",
    "enter_state_d",
    "endless_thread",
    "stop",
    "end_by",
    "kill",
    "exit_at_once",
    "segfault",
    "use_up_memory",
}


def test_every_act_is_tested_here() -> None:
    public = {
        n for n, f in vars(acts).items() if inspect.isfunction(f) and f.__module__ == acts.__name__
    }
    assert {n for n in public if not n.startswith("_")} == set(BLOCKING) | ALONE


def test_acts_need_no_torch() -> None:
    code = "import sys; from hangdoctor.train.faults import acts, outside; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


@pytest.mark.parametrize("act", BLOCKING)
def test_it_blocks_while_other_threads_run_and_a_raising_handler_ends_it(
    act: str, tmp_path: Path
) -> None:
    arguments, where = BLOCKING[act]
    os.mkfifo(tmp_path / "fifo")
    with acting(tmp_path, act, arguments) as it:
        it.in_act(where)
        it.in_state("S")
        spent = psutil.Process(it.pid).cpu_times()
        assert it.others_run() and act in it.seen()[1]
        assert psutil.Process(it.pid).cpu_times().user - spent.user < 1
        interrupt(it.pid)
        assert it.said() == "released descriptors 0 children False"


RELEASES: dict[str, Callable[[Acting], None]] = {
    "read_pipe": lambda it: feed(pipe_ends(it.pid, os.O_WRONLY)[0]),
    "write_pipe": lambda it: drain(pipe_ends(it.pid, os.O_RDONLY)[0]),
    "read_fifo": lambda it: feed(it.folder / "fifo"),
    "open_fifo": lambda it: feed(it.folder / "fifo"),
    "write_fifo": lambda it: drain(it.folder / "fifo"),
}


@pytest.mark.parametrize("act", RELEASES)
def test_what_it_waits_for_ends_it(act: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with acting(tmp_path, act, BLOCKING[act][0]) as it:
        it.in_act(act)
        it.in_state("S")
        RELEASES[act](it)
        said = "b'x'" if act == "open_fifo" else "None"
        assert it.said() == f"{said} descriptors 0 children False"


def test_a_file_lock_is_waited_for(tmp_path: Path) -> None:
    with acting(tmp_path, "lock_file_twice", "(here / 'lock',)") as it:
        wait_until(
            lambda: any(
                "-> FLOCK" in line and str(it.pid) in line.split()
                for line in Path("/proc/locks").read_text().splitlines()
            ),
            "the kernel lists its wait",
            20,
        )


@pytest.mark.parametrize(
    ("act", "status"),
    [
        ("fork_with_lock", psutil.STATUS_SLEEPING),
        ("dead_child", psutil.STATUS_ZOMBIE),
        ("stopped_child", psutil.STATUS_STOPPED),
        ("endless_command", psutil.STATUS_SLEEPING),
    ],
)
def test_its_child_is_as_the_name_says_and_does_not_outlive_it(
    act: str, status: str, tmp_path: Path
) -> None:
    with acting(tmp_path, act) as it:
        it.in_act(act)
        wait_until(
            lambda: [c.status() for c in it.children()] == [status], f"a child: {status}", 20
        )
        [child] = it.children()
        if act == "endless_command":
            assert child.cmdline() == ["sleep", "3600"]
            return  # a command of its own: it ends with the session
        it.process.kill()
        it.process.wait()
        wait_until(lambda: not child.is_running() or child.status() == "zombie", "it ends too", 20)


def test_a_spinning_process_uses_its_processor(tmp_path: Path) -> None:
    with acting(tmp_path, "spin") as it:
        it.in_act("spin")
        before = psutil.Process(it.pid).cpu_times().user
        wait_until(
            lambda: psutil.Process(it.pid).cpu_times().user > before + 0.5, "it computes", 30
        )
        assert it.others_run()
        interrupt(it.pid)
        assert it.said().startswith("released")


def test_with_the_gil_held_no_other_thread_runs(tmp_path: Path) -> None:
    with acting(tmp_path, "hold_gil") as it:
        wait_until(lambda: not it.others_run(), "the other thread waits", 20)
        assert it.state() == "S"
        interrupt(it.pid)
        assert it.said().startswith("released")


def test_state_d_gives_up_the_gil_and_ends_with_its_child(tmp_path: Path) -> None:
    with acting(tmp_path, "enter_state_d") as it:
        it.in_state("D")
        assert it.others_run() and "enter_state_d" in it.seen()[1]
        [child] = psutil.Process(it.pid).children()
        child.kill()
        assert it.said() == "None descriptors 0 children False"


def test_state_d_leaves_nothing_behind_when_it_is_killed(tmp_path: Path) -> None:
    with acting(tmp_path, "enter_state_d") as it:
        it.in_state("D")
        wait_until(lambda: len(it.children()) >= 2, "its child and that one's shell", 20)
        left = it.children()
        it.process.kill()
        it.process.wait()
        _gone, alive = psutil.wait_procs(left, timeout=20)
        assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def test_a_thread_that_does_not_end_keeps_the_interpreter(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with acting(tmp_path, "endless_thread", FIFO) as it:
        assert it.process.stdout is not None
        assert it.process.stdout.readline().startswith("None")
        it.in_act("_shutdown")
        assert it.process.poll() is None
        feed(tmp_path / "fifo")
        it.said()


def test_a_delay_ends(tmp_path: Path) -> None:
    began = time.monotonic()
    acts.delay(0.2)
    assert time.monotonic() - began >= 0.2


def test_it_stops_itself(tmp_path: Path) -> None:
    with acting(tmp_path, "stop") as it:
        it.in_state("T")
        os.kill(it.pid, signal.SIGCONT)
        assert it.said().startswith("None")


@pytest.mark.parametrize(
    ("act", "arguments", "code"),
    [
        ("kill", "()", -signal.SIGKILL),
        ("end_by", "(signal.SIGTERM,)", -signal.SIGTERM),
        ("segfault", "()", -signal.SIGSEGV),
        ("exit_at_once", "()", 0),
        ("exit_at_once", "(3,)", 3),
        ("use_up_memory", "(16,)", 1),
    ],
)
def test_it_ends_with_this_code_and_says_nothing_more(
    act: str, arguments: str, code: int, tmp_path: Path
) -> None:
    with acting(tmp_path, act, arguments) as it:
        assert it.process.wait(timeout=20) == code
        assert it.process.stdout is not None and it.process.stdout.read() == ""


def test_memory_is_taken_up_to_the_limit() -> None:
    with pytest.raises(MemoryError, match=r"^4 blocks of 8 MB"):
        acts.use_up_memory(32)
