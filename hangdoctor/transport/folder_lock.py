"""One collector a folder: a lock that ends with its process, however that ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from ..errors import CollectorError
from .keys import make_folder

FILE = "collector.lock"
_TAKEN = (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN)
_WORDS = 200  # bytes that the holder writes about itself


@contextlib.contextmanager
def only_collector(folder: Path) -> Iterator[None]:
    """Hold the folder's lock.

    Raises:
        CollectorError: another collector of this folder lives, or no file can be made there.
    """
    path = make_folder(folder) / FILE
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CollectorError(f"{path} cannot be opened: {error.strerror}") from error
    try:
        if not _taken(lock):
            who = os.pread(lock, _WORDS, 0).decode("utf-8", "replace").strip()
            raise CollectorError(
                f"a collector of {folder} is already running ({who or 'process unknown'})",
                "Use that one, or stop it first; or choose another folder with --folder DIR.",
            )
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(lock)


def _taken(lock: int) -> bool:
    """Whether the lock is ours now. A file system without locks refuses no collector."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _TAKEN
    return True


def has_collector(folder: Path) -> bool:
    """Whether a collector of this folder lives, on any node whose locks this file system shows."""
    try:
        lock = os.open(folder / FILE, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _taken(lock)
    finally:
        os.close(lock)
