"""What a process does to itself, by means of the operating system: nothing here is simulated.

The trainer, the benchmarks and the tests take their faults from here. An act that blocks does so
until a signal handler raises; then it takes back what it made: children, locks, pipes. It imports
the standard library only, for ranks without torch. `outside` has what is done to a process from
outside, `collectives` what a rank does wrong in a collective.

Not from here: the jobs of `tests/frameworks` and `tests/probe/harmless`, which are programs as users
write them, so that the frame to be named is their own line; and processes of tests that only have to
be there, whose one line sleeps.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

_FOREVER = 10**7  # seconds
_PR_SET_PDEATHSIG = 1  # prctl(2)
_CLONE_VFORK = 0x4000  # clone(2): the caller sleeps in state D until its child is gone

# ------------------------------------------------------------------- it goes on


def sleep() -> NoReturn:
    """Sleeps."""
    while True:
        time.sleep(_FOREVER)


def delay(seconds: float) -> None:
    """Sleeps for a while: a slow rank."""
    time.sleep(seconds)


def spin() -> NoReturn:
    """Runs Python."""
    count = 0
    while True:
        count = (count * 31 + 7) % 1_000_003


def hold_gil() -> NoReturn:
    """Sleeps in C with the GIL held: a PyDLL call keeps it, no other Python thread runs."""
    libc = ctypes.PyDLL(None)
    while True:
        libc.sleep(3600)


# --------------------------------------------------------------- pipes and files


def read_pipe() -> None:
    """Reads from a pipe that no process writes to."""
    reader, writer = os.pipe()
    try:
        os.read(reader, 1)
    finally:
        os.close(reader)
        os.close(writer)


def write_pipe() -> None:
    """Writes to a full pipe that no process reads."""
    reader, writer = os.pipe()
    try:
        os.write(writer, b"x" * (1 << 20))
    finally:
        os.close(reader)
        os.close(writer)


def read_fifo(path: Path) -> None:
    """Reads from a FIFO that no process writes to."""
    fifo = os.open(path, os.O_RDWR)  # opened for both, the open does not block
    try:
        os.read(fifo, 1)
    finally:
        os.close(fifo)


def open_fifo(path: Path) -> bytes:
    """Opens a FIFO that no process writes to; returns what one writes after all."""
    with path.open("rb") as fifo:
        return fifo.read()


def write_fifo(path: Path) -> None:
    """Opens a FIFO that no process reads, to write."""
    with path.open("wb") as fifo:
        fifo.write(b"")


def lock_file_twice(path: Path) -> None:
    """Waits for a file lock (flock) that it has itself, through another descriptor."""
    with path.open("w") as first, path.open("w") as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        fcntl.flock(second, fcntl.LOCK_EX)


def put_into_full_queue() -> None:
    """Puts a line into a full queue: a logger whose thread has ended."""
    lines: queue.Queue[int] = queue.Queue(maxsize=1)
    lines.put(1)
    lines.put(2)


def enter_state_d() -> None:
    """Uninterruptible sleep (state D), as a file system that does not answer causes it.

    The parent of a vfork is in it until its child is gone. The child waits for a shell that ends
    with either of them: a process that is killed leaves nothing behind.
    """
    libc = ctypes.CDLL(None)  # unlike PyDLL it gives up the GIL, as reading a file does
    stack = ctypes.create_string_buffer(1 << 18)
    top = (ctypes.addressof(stack) + len(stack)) & ~15
    command = (
        f"exec </dev/null >/dev/null 2>&1; "
        f"while [ -e /proc/{os.getpid()}/exe ] && [ -e /proc/$PPID/exe ]; do sleep 1; done"
    )
    flags = _CLONE_VFORK | signal.SIGCHLD
    child = libc.clone(libc.system, ctypes.c_void_p(top), flags, ctypes.c_char_p(command.encode()))
    os.waitpid(child, 0)


# ------------------------------------------------------------ locks and children


def lock_twice() -> None:
    """Waits for a lock that it has itself."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@contextlib.contextmanager
def _lock_of_a_thread() -> Iterator[threading.Lock]:
    """A lock that another thread of this process holds until the block is left."""
    lock, taken, over = threading.Lock(), threading.Event(), threading.Event()

    def keep_the_lock() -> None:
        with lock:
            taken.set()
            over.wait()

    threading.Thread(target=keep_the_lock, name="lock-holder", daemon=True).start()
    taken.wait()
    try:
        yield lock
    finally:
        over.set()


def lock_of_a_thread() -> None:
    """Waits for a lock that another of its threads never releases."""
    with _lock_of_a_thread() as lock:
        lock.acquire()


@contextlib.contextmanager
def _child(life: Callable[[], object]) -> Iterator[int]:
    """A forked child that does `life`; it outlives neither this process nor the block."""
    child = os.fork()
    if child == 0:
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            life()
        finally:
            os._exit(0)
    try:
        yield child
    finally:
        with contextlib.suppress(ChildProcessError):  # somebody has waited for it already
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def fork_with_lock() -> None:
    """Waits for a child that waits for a lock which was held when it was forked: the thread that
    holds it does not exist in the child.
    """
    with _lock_of_a_thread() as lock:

        def take_the_lock() -> None:
            lock.acquire()

        with _child(take_the_lock) as child:
            os.waitpid(child, 0)


def dead_child() -> None:
    """Reads from a pipe whose writer, its child, has failed with code 3."""
    with _child(lambda: os._exit(3)) as child:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        read_pipe()


def stopped_child() -> None:
    """Waits for a child that is stopped."""
    with _child(stop) as child:
        os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOWAIT)
        os.waitpid(child, 0)


def endless_command() -> None:
    """Waits for a command that does not end: `sleep 3600`."""
    subprocess.run(["sleep", "3600"])


def endless_thread(path: Path) -> None:
    """Starts a thread that opens a FIFO as `open_fifo` does: at its end the interpreter waits for
    it.
    """
    threading.Thread(target=open_fifo, args=(path,)).start()


# --------------------------------------------------------------------- it ends


def stop() -> None:
    """Stops itself with SIGSTOP."""
    os.kill(os.getpid(), signal.SIGSTOP)


def end_by(number: signal.Signals) -> NoReturn:
    """Sends itself a signal that ends it, and waits for that."""
    os.kill(os.getpid(), number)
    sleep()


def kill() -> NoReturn:
    """Kills itself with SIGKILL."""
    end_by(signal.SIGKILL)


def exit_at_once(code: int = 0) -> NoReturn:
    """Exits without handlers, destructors and farewell to its peers."""
    sys.stdout.flush()
    os._exit(code)


def segfault() -> None:
    """Reads from address 0 (SIGSEGV)."""
    ctypes.string_at(0)


def use_up_memory(limit_mb: int) -> NoReturn:
    """Takes memory until its control group has no more, and `limit_mb` in any case.

    Raises:
        MemoryError: that much was to be had.
    """
    kept = []
    for _ in range(limit_mb // 8):
        kept.append(b"x" * (8 << 20))
    raise MemoryError(f"{len(kept)} blocks of 8 MB fit into the control group")
