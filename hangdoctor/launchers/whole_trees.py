"""SIGKILL to a command and to all that it started, also what has left its process group.

pdsh gives each of its ssh a session of its own: a signal to the group of pdsh does not meet it, and a
ssh that waits for a dead node would stay until its own time-out.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import psutil


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a command that leads its own process group, and its descendants. Nothing where it has
    ended by itself.
    """
    beside = _descendants(process)  # before it ends: they have another parent afterwards
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for one in beside:
        with contextlib.suppress(psutil.Error):  # psutil compares start times: never a stranger
            one.kill()


def _descendants(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    if process.poll() is not None:
        return []
    found: list[psutil.Process] = []
    waiting = [process.pid]
    while waiting:
        for pid in _children(waiting.pop()):
            with contextlib.suppress(psutil.Error):
                found.append(psutil.Process(pid))
                waiting.append(pid)
    return found


def _children(pid: int) -> list[int]:
    """What the kernel keeps of a process: psutil's own list reads every process of the machine, too
    much for hundreds of commands on a full login node.
    """
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in path.read_text().split()]
    return found
