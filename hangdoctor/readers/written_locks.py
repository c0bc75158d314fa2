"""Lock files that hold the process id of who made them, as programs write them by hand (O_EXCL) and
as `filelock.SoftFileLock` does. /proc/locks knows nothing of these.

The stack of who polls shows that a file is in its way, and not its path. So the file is looked for
in the folder that the job runs in, and is taken where exactly one there names another rank of this
node that was running when it was written.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import psutil

from ..model.capture import RankCapture
from ..text.late import late
from ..text.plain import readable
from ..time_limit import OutOfTime, within
from . import file_locks

_NAME = late(r"(?:^|[._-])lock|lock$", re.I)
_EXISTS = late(r"\b(?:FileExistsError|OSError)\b")  # what an attempt to make the file raises
_LIBRARY = "/filelock/"
_HELD = late(rb"\s*(\d{1,9})\s*(?:\n[^\n]{1,256}\s*)?$")
_LARGEST = 300  # bytes of such a file
_DEEPEST = 2  # folders below that of the job
_MOST = 4000  # names that are looked at
_PATIENCE_S = 2.0
_CLOCKS_S = 1.0  # by which a file system's clock may be behind


def attach(ranks: Iterable[RankCapture]) -> None:
    """Set `lock` of the ranks that poll for a lock whose file names another rank."""
    some = list(ranks)
    by_pid = {rank.pid: rank for rank in some}
    told: dict[str, list[tuple[str, int]]] = {}  # by the folder of the job
    for rank in some:
        if rank.lock is not None or not _polls_for_a_file(rank):
            continue
        try:
            found = within(_PATIENCE_S, partial(_named, rank.pid, by_pid, told))
        except OutOfTime:  # a file system that does not answer, nor would it the next rank
            return
        if len(found) == 1:
            [(path, pid)] = found
            holder = file_locks.holder(pid)
            holder.path = readable(path)
            rank.lock = holder


def _polls_for_a_file(rank: RankCapture) -> bool:
    """Whether it sleeps where it acquires a lock by making a file: other locks are of no concern
    here.
    """
    if not file_locks.polls(rank):
        return False
    frames = next(t.frames for t in rank.samples[-1].threads if t.name == "MainThread")
    return any(_EXISTS.search(frame.catches) or _LIBRARY in frame.file for frame in frames)


def _named(
    pid: int, by_pid: Mapping[int, RankCapture], told: dict[str, list[tuple[str, int]]]
) -> list[tuple[str, int]]:
    """(lock file, other rank that it names) near the working folder of a process."""
    try:
        folder = psutil.Process(pid).cwd()
    except (psutil.Error, OSError):
        return []
    if folder not in told:
        files = ((str(path), *_written(path)) for path in _lock_files(folder))
        told[folder] = [
            (path, named)
            for path, named, written in files
            if named in by_pid and _ran_then(named, written)
        ]
    return [(path, named) for path, named in told[folder] if named != pid]


def _lock_files(folder: str) -> list[Path]:
    """None where there is more than may be looked at: one that was not seen may be the one."""
    found: list[Path] = []
    left = _MOST
    level = [folder]
    for _ in range(_DEEPEST + 1):
        below: list[str] = []
        for where in level:
            with contextlib.suppress(OSError), os.scandir(where) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return []
                    if entry.is_dir(follow_symlinks=False):
                        below.append(entry.path)
                    elif _NAME.search(entry.name):
                        found.append(Path(entry.path))
        level = below
    return found


def _written(path: Path) -> tuple[int, float]:
    """(process that the file names, when it was written); (0, 0.0) of another file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return 0, 0.0
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _LARGEST:
            return 0, 0.0
        match = _HELD.match(os.read(fd, _LARGEST))
        return (int(match[1]), about.st_mtime) if match is not None else (0, 0.0)
    except OSError:
        return 0, 0.0
    finally:
        os.close(fd)


def _ran_then(pid: int, written: float) -> bool:
    try:
        return float(psutil.Process(pid).create_time()) <= written + _CLOCKS_S
    except psutil.Error:
        return False
