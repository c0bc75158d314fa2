"""The run-time folder of a job: private to its user, refused when somebody else got there first."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Mapping
from pathlib import Path

from . import format as fmt
from .held import has_writer
from .identity import boot_id, job_key, start_ticks


class FolderRefused(OSError):
    """The folder belongs to somebody else, is a link, or is meant for all users."""


def root() -> Path:
    """Where jobs of this user have their folders: shared memory where there is some, else the temporary folder."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else os.environ.get("TMPDIR", "/tmp")
    return Path(base) / f"hangdoctor-{os.getuid()}"


def job_folder(environ: Mapping[str, str]) -> Path:
    """HANGDOCTOR_DIR, or the default for this job; made with mode 0700 by `prepare`."""
    told = environ.get("HANGDOCTOR_DIR")
    # Absolute: the job may change its folder later.
    return Path(told).absolute() if told else root() / job_key(environ)


def prepare(folder: Path) -> Path:
    """Make the folder, or check the one that is there.

    Raises:
        FolderRefused: it is a link, no folder, or another user's.
        OSError: it cannot be made.
    """
    default = root()
    if default in folder.parents:
        _make_private(default)
    else:
        folder.parent.mkdir(parents=True, exist_ok=True)
    _make_private(folder)
    return folder


def _make_private(folder: Path) -> None:
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise FolderRefused(f"{folder} is a link, no folder, or another user's: set HANGDOCTOR_DIR to one of yours")
    if found.st_mode & stat.S_ISVTX or (found.st_mode & stat.S_IWOTH and any(folder.iterdir())):
        # Root's /tmp, for example: to make that private would take it away from everybody else.
        raise FolderRefused(f"{folder} is one that all users share: set HANGDOCTOR_DIR to a folder below it")
    if stat.S_IMODE(found.st_mode) & 0o077:
        folder.chmod(0o700)


def remove_if_empty(folder: Path) -> None:
    """Take a default folder away with its last box, and a request to trace from any; one that the user named stays."""
    if not any(folder.glob(f"*{fmt.SUFFIX}")):
        (folder / "trace.json").unlink(missing_ok=True)
    if root() in folder.parents:
        with contextlib.suppress(OSError):
            folder.rmdir()


def prune(folder: Path, rank: int, host: str) -> None:
    """Keep one box of this rank's dead predecessors, the newest: restarts must not fill the shared memory."""
    dead: list[tuple[float, Path]] = []
    for path in folder.glob(f"{host}-*{fmt.SUFFIX}"):
        try:
            with path.open("rb") as file:
                head = file.read(fmt.HEADER_BYTES)
            if len(head) < fmt.HEADER_BYTES or not head.startswith(fmt.MAGIC):
                continue
            if field(head, fmt.H_RANK) == rank and not is_running(head) and not has_writer(path):
                dead.append((path.stat().st_mtime, path))
        except OSError:
            continue
    for _, path in sorted(dead)[:-1]:
        path.unlink(missing_ok=True)
        path.with_suffix(".calls").unlink(missing_ok=True)
        (folder / f"worker-{path.stem.removeprefix(f'{host}-')}.sock").unlink(missing_ok=True)


def field(head: bytes | memoryview, place: tuple[int, str]) -> int:
    """One number of a header."""
    number: int = struct.unpack_from(place[1], head, place[0])[0]
    return number


def is_running(head: bytes | memoryview) -> bool:
    """Whether the process that wrote this header still runs on this machine, on this boot."""
    if bytes(head[fmt.H_BOOT_ID[0] : fmt.H_BOOT_ID[0] + 16]) != boot_id():
        return False
    started = field(head, fmt.H_STARTED_TICKS)
    return started != 0 and start_ticks(field(head, fmt.H_PID)) == started
