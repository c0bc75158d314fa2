"""A process that does one act of the fault library, as the library's own tests watch it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.support.stage import wait_until

ROOT = Path(__file__).parents[2]

# The process that acts. A thread of it counts (does other Python run?) and tells where the main thread is.
# SIGUSR1 raises in the main thread, as a test's release does.
PROGRAM = """
import os, signal, sys, threading, time
from pathlib import Path
from hangdoctor.train.faults import acts

here = Path(sys.argv[1])

class Released(Exception):
    pass

def release(*_):
    raise Released

def watch(main):
    count = 0
    while main in (frames := sys._current_frames()):
        count += 1
        frame, names = frames[main], []
        while frame:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        (here / "part").write_text(f"{count} {' '.join(names)}")
        (here / "part").rename(here / "seen")
        time.sleep(0.01)

def descriptors():
    links = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    # Not the other thread's file, at any moment of its life, nor the listing's own folder.
    passing = ("/part", "/seen"), ("/proc/",)
    return len([k for k in links if not k.endswith(passing[0]) and not k.startswith(passing[1])])

signal.signal(signal.SIGUSR1, release)
threading.Thread(target=watch, args=(threading.get_ident(),), daemon=True).start()
before = descriptors()
print("ready", flush=True)
try:
    said = getattr(acts, sys.argv[2])(*eval(sys.argv[3]))
except Released:
    said = "released"
left = descriptors() - before
try:
    os.waitpid(-1, os.WNOHANG)
    left_children = True
except ChildProcessError:
    left_children = False
print(said, "descriptors", left, "children", left_children, flush=True)
"""


class Acting:
    """One process in its act."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process, self.folder, self.pid = process, folder, process.pid

    def state(self, tid: int = 0) -> str:
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{self.pid}/task/{tid or self.pid}/stat").read_text()
            return stat.rpartition(")")[2].split()[0]
        return "gone"

    def seen(self) -> tuple[int, list[str]]:
        """(count of the other thread, functions of the main one, innermost first)."""
        try:
            count, *names = (self.folder / "seen").read_text().split()
        except FileNotFoundError:
            return 0, []
        return int(count), names

    def in_act(self, name: str) -> None:
        wait_until(lambda: name in self.seen()[1], lambda: f"{name}: {self.seen()}", 20)

    def in_state(self, state: str) -> None:
        wait_until(lambda: self.state() == state, lambda: f"{state}, not {self.state()}", 20)

    def others_run(self) -> bool:
        """Whether other Python threads of it run."""
        before, end = self.seen()[0], time.monotonic() + 3
        while time.monotonic() < end:
            if self.seen()[0] > before + 2:
                return True
            time.sleep(0.02)
        return False

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children(recursive=True)

    def said(self) -> str:
        """Its last line, once it has ended by itself."""
        out, _ = self.process.communicate(timeout=20)
        assert self.process.returncode == 0, self.process.returncode
        return out.strip()


@contextlib.contextmanager
def acting(folder: Path, act: str, arguments: str = "()") -> Iterator[Acting]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), act, arguments],
        cwd=ROOT,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield Acting(process, folder)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=20)
        process.stdout.close()
