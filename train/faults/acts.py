"""What each fault does, with the means of the operating system: nothing here is simulated.

An act returns True where it stands in for the operation that the trainer was about to make.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .collectives import COLLECTIVE_ACTS
from .spec import Fault

_FOREVER = 10**7  # seconds


def announce(fault: Fault) -> None:
    """One line on stdout, flushed: the process may not run much longer."""
    os.write(
        1,
        f"fault: {fault.kind} at rank {fault.rank} iteration {fault.iteration} {fault.where}, pid {os.getpid()}\n".encode(),
    )


def strike(fault: Fault, context: dict[str, Any]) -> bool:
    """Do what the fault does; True where the caller must leave its own call out."""
    if fault.kind != "slow" or not _slow_told:
        announce(fault)
    if fault.kind in COLLECTIVE_ACTS:
        return COLLECTIVE_ACTS[fault.kind](context)
    return _ACTS[fault.kind]() is True


def _sleep() -> None:
    while True:
        time.sleep(_FOREVER)


def _read() -> None:
    reader, _writer = os.pipe()
    os.read(reader, 1)


def _lock() -> None:
    """A lock that another thread of this process took and sleeps on."""
    lock, taken = threading.Lock(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            _sleep()

    threading.Thread(target=hold, name="lock-holder", daemon=True).start()
    taken.wait()
    with lock:
        pass


def _busy() -> None:
    count = 0
    while True:
        count = (count * 31 + 7) % 1_000_003


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _exit() -> None:
    sys.stdout.flush()
    os._exit(0)


def _fifo() -> str:
    path = Path(tempfile.mkdtemp(prefix="train-fault-")) / "fifo"
    os.mkfifo(path)
    return str(path)


def _io_wait() -> None:
    """posix_spawn suspends the parent (as vfork does) until the child execs; the child opens a FIFO
    first.
    """
    actions = [(os.POSIX_SPAWN_OPEN, 9, _fifo(), os.O_RDONLY, 0)]
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=actions)


def _gil() -> None:
    """PyDLL calls keep the interpreter lock; no Python thread of the process runs."""
    libc = ctypes.PyDLL(None)
    libc.usleep.argtypes = [ctypes.c_uint]
    while True:
        libc.sleep(3600)


def _fork_lock() -> None:
    """The child inherits a lock that a thread holds which does not exist in the child."""
    lock, taken = threading.Lock(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            _sleep()

    threading.Thread(target=hold, name="lock-holder", daemon=True).start()
    taken.wait()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: never outlive the rank
        lock.acquire()
        os._exit(0)
    os.waitpid(child, 0)


_slow_told = False


def _slow() -> None:
    global _slow_told
    _slow_told = True
    time.sleep(0.5)


def _data_dead() -> None:
    """The worker neither answers nor ends: what a worker killed on a dead node looks like to its
    rank.
    """
    os.kill(os.getpid(), signal.SIGSTOP)


def _writer() -> None:
    with Path(_fifo()).open("wb") as blocked:
        blocked.write(b"")


def _device_wait() -> None:
    import torch

    torch.cuda._sleep(1 << 60)


_ACTS: dict[str, Callable[[], object]] = {
    "sleep": _sleep,
    "read": _read,
    "lock": _lock,
    "busy": _busy,
    "stop": _stop,
    "kill": _kill,
    "exit": _exit,
    "io_wait": _io_wait,
    "gil": _gil,
    "fork_lock": _fork_lock,
    "slow": _slow,
    "data_stuck": _read,
    "data_dead": _data_dead,
    "checkpoint_fifo": _writer,
    "no_rendezvous": _sleep,
    "no_group": _sleep,
    "device_wait": _device_wait,
    "missing_send": lambda: True,
    "missing_recv": lambda: True,
}
