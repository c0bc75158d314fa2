"""The run-time folder of a job: what lies in it is private to its user, and nothing but our own
files is ever touched.

A folder that the user names may hold other things and keeps its mode. Our files carry our name, and
one is removed or replaced only where it is what its name says.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from . import format as fmt
from .identity import boot_id, job_key, start_ticks
from .still_written import has_writer
from .whose_error import suppress

REQUEST = "hangdoctor-trace.json"  # of calls.request, which is not imported before there is one
LAUNCH = "hangdoctor-launch.json"  # what the job's launcher was asked to start
_OTHERS_WRITE = 0o022
_SPARE = 3  # more names for the default place, where someone else has taken it


class FolderRefused(OSError):
    """The folder is a link, no folder, or others can write into it."""


def root() -> Path:
    """Where jobs of this user have their folders: shared memory where there is some, else the
    temporary folder.
    """
    return Path(_bases()[0]) / f"hangdoctor-{os.getuid()}"


def _bases() -> list[str]:
    temporary = os.environ.get("TMPDIR") or "/tmp"
    return ["/dev/shm", temporary] if os.access("/dev/shm", os.W_OK | os.X_OK) else [temporary]


def places() -> list[Path]:
    """`root` and, for when others have taken that, the next ones; `readers.blackbox` looks into all
    of them.
    """
    user = f"hangdoctor-{os.getuid()}"
    names = [user, *(f"{user}-{n}" for n in range(1, _SPARE + 1))]
    found = [Path(base) / name for base in _bases() for name in names]
    return [root(), *(place for place in found if place != root())]


def job_folder(environ: Mapping[str, str]) -> Path:
    """HANGDOCTOR_DIR, or the default for this job; made with mode 0700 by `prepare`."""
    told = environ.get("HANGDOCTOR_DIR")
    # Absolute: the job may change its folder later.
    return Path(told).absolute() if told else root() / job_key(environ)


def take(wanted: Path, name: str) -> tuple[Path, str]:
    """(the folder for a job's files, why it is not the one that was wanted): in that case one
    called `name` in the next place.

    Raises:
        OSError: no place will do.
    """
    try:
        return prepare(wanted), ""
    except OSError as error:
        first = error
    why = f"{wanted}: {first.strerror}" if first.strerror else str(first)
    if wanted.parent in places():
        name = wanted.name
    for place in places():
        with suppress(OSError):
            return prepare(place / name), why
    raise first


def prepare(folder: Path) -> Path:
    """Make the folder, or check the one that is there; in one that others can write into, a private
    folder is made.

    Raises:
        FolderRefused: it is a link, no folder, or another user's.
        OSError: it cannot be made.
    """
    default = next((place for place in places() if place in folder.parents), None)
    if default is not None:
        _own(default)
        return _own(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    found = _made(folder)
    if found.st_uid == os.getuid() and not found.st_mode & _OTHERS_WRITE:
        return folder
    if found.st_uid in (os.getuid(), 0) or found.st_mode & stat.S_ISVTX:  # a pool of a group, /tmp
        return _own(folder / f"hangdoctor-{os.getuid()}")
    raise FolderRefused(
        f"{folder} belongs to another user: set HANGDOCTOR_DIR to a folder of your own"
    )


def _own(folder: Path) -> Path:
    found = _made(folder)
    if found.st_uid != os.getuid() or found.st_mode & _OTHERS_WRITE:
        raise FolderRefused(f"{folder} belongs to another user, or others can write to it")
    return folder


def _made(folder: Path) -> os.stat_result:
    """The status of a folder, made if it is not there."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise FolderRefused(
            f"{folder} is a symbolic link or not a folder: set HANGDOCTOR_DIR to a folder of your own"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(13, "no permission to write", str(folder))
    return found


def remove_if_empty(folder: Path) -> None:
    """Take a default folder away with its last box, and our notes on the job from any; one that the
    user named stays.
    """
    if not any(folder.glob(f"*{fmt.SUFFIX}")):
        for name in (REQUEST, LAUNCH):
            with suppress(OSError):
                (folder / name).unlink()
    user = f"hangdoctor-{os.getuid()}"
    if folder.name == user or any(place in folder.parents for place in places()):
        with suppress(OSError):
            folder.rmdir()


def discard(path: Path, magic: bytes) -> None:
    """Remove a file that an earlier process of ours has left under a name that is needed now; any
    other file stays.

    Raises:
        OSError: it cannot be removed, or read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        head = os.read(fd, len(magic)) if stat.S_ISREG(os.fstat(fd).st_mode) else b"?"
    finally:
        os.close(fd)
    if head == magic or not head.strip(b"\0"):  # its header is written last
        path.unlink(missing_ok=True)


def remove_own(path: Path, made: os.stat_result) -> None:
    """Remove a file of this process, unless another one has come in its place.

    Raises:
        OSError: it cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(path.lstat(), made):
            path.unlink()


def write_own(path: Path, made: os.stat_result, parts: Iterable[tuple[int, bytes]]) -> None:
    """Write (offset, bytes) into a file of this process, unless it is gone or another one has come
    in its place.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    try:
        if os.path.samestat(os.fstat(fd), made):
            for offset, data in parts:
                os.pwrite(fd, data, offset)
    except OSError:
        return
    finally:
        os.close(fd)


def discard_socket(path: Path) -> None:
    """The same for a socket.

    Raises:
        OSError: it cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()


def socket_name(process: str) -> str:
    """The worker server's socket of a process (`identity.process_name`)."""
    return f"hangdoctor-{process}.sock"


def prune(folder: Path, rank: int, host: str) -> None:
    """Keep one box of this rank's dead predecessors, the newest: restarts must not fill the shared
    memory.
    """
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
        for suffix in (".calls", *(beside for beside, _ in fmt.BESIDE)):
            path.with_suffix(suffix).unlink(missing_ok=True)
        (folder / socket_name(path.stem.removeprefix(f"{host}-"))).unlink(missing_ok=True)


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
