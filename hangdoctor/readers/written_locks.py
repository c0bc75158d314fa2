"""Lock files that hold the process id of who made them, as programs write them by hand (O_EXCL) and
as `filelock.SoftFileLock` does. /proc/locks knows nothing of these.

The stack of who polls does not show the path. So it is looked for in the folder that the job runs in,
and is taken where exactly one file there names another rank of this node that was running when the
file was written.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from ..model.capture import RankCapture
from ..text.late import late
from ..text.plain import readable
from ..time_limit import OutOfTime, within
from . import file_locks

_NAME = late(r"lock|\.pid$", re.I)
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
    for rank in some:
        if rank.lock is not None or not file_locks.polls(rank):
            continue
        try:
            found = within(_PATIENCE_S, lambda pid=rank.pid: _named(pid, by_pid))  # type: ignore[misc]
        except OutOfTime:  # a file system that does not answer
            continue
        if len(found) == 1:
            [(path, pid)] = found
            holder = file_locks.holder(pid)
            holder.path = readable(path)
            rank.lock = holder


def _named(pid: int, by_pid: dict[int, RankCapture]) -> list[tuple[str, int]]:
    """(lock file, rank that it names) near the working folder of a process."""
    try:
        folder = psutil.Process(pid).cwd()
    except (psutil.Error, OSError):
        return []
    found: list[tuple[str, int]] = []
    for path in _lock_files(folder):
        named, written = _written(path)
        if named in by_pid and named != pid and _ran_then(named, written):
            found.append((str(path), named))
    return found


def _lock_files(folder: str) -> Iterator[Path]:
    left = _MOST
    level = [folder]
    for _ in range(_DEEPEST + 1):
        below: list[str] = []
        for where in level:
            with contextlib.suppress(OSError), os.scandir(where) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return
                    if entry.is_dir(follow_symlinks=False):
                        below.append(entry.path)
                    elif _NAME.search(entry.name):
                        yield Path(entry.path)
        level = below


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
