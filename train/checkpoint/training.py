"""Who is training into a folder of checkpoints: rank 0 says so in a file there."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from pathlib import Path

NAME = "training.json"


def _start_of(pid: int) -> str:
    """When the process started, in ticks since the boot; "" where there is no such process."""
    try:
        # Of what follows the program's name in parentheses; see proc(5), starttime.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def begin(folder: Path) -> None:
    """Leave the file; a file system that refuses it ends no training."""
    mark = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "start": _start_of(os.getpid()),
        "job": os.environ.get("SLURM_JOB_ID", ""),
    }
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / NAME).write_text(json.dumps(mark))


def end(folder: Path) -> None:
    """Remove the file."""
    with suppress(OSError):
        (folder / NAME).unlink()


def who(folder: Path) -> str:
    """Who is training there, in words; "" where no one is seen.

    A process of this host is looked up: a killed one counts no more. One of another host counts.
    """
    try:
        mark = json.loads((folder / NAME).read_text())
        host, pid, start = mark["host"], int(mark["pid"]), mark["start"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    here = host == socket.gethostname()
    if here and _start_of(pid) != start:
        return ""
    job = f", job {mark['job']}" if mark.get("job") else ""
    return f"process {pid} on {host}{job}"
