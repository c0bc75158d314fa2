"""Reads files that another user may have put there: regular ones, of a bounded size, and whose they
are.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from .errors import BadInput

_ROOT = 0
_HOLES = 64 << 20  # a file of at least this size that is mostly holes was made to fill the memory


def open_regular(
    path: str | Path, owners: Collection[int] | None = None, links: bool = True
) -> int:
    """A descriptor of a regular file; never waits at a FIFO or a device.

    Args:
        owners: users, one of which (or root) must own it; None allows any owner.
        links: whether `path` itself may be a symbolic link.

    Raises:
        BadInput: no regular file, or another user's.
        OSError: it is not there, or may not be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW))
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise BadInput(f"{path} is not a regular file")
        if owners is not None and not is_of(status.st_uid, owners):
            raise BadInput(
                f"{path} is left out: it belongs to user {status.st_uid}, not to the user of its process"
            )
    except BaseException:
        os.close(fd)
        raise
    return fd


def is_empty(path: str | Path) -> bool:
    """Whether it is a regular file without a byte in it."""
    try:
        status = os.stat(path)  # noqa: PTH116 - as the others here
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == 0


def is_of(uid: int, owners: Collection[int]) -> bool:
    """Whether a file of `uid` can be one of these users': root's can, since no one else has made
    it.
    """
    return uid in owners or uid == _ROOT


MAX_SETTINGS = 256 << 10  # a file that a person writes; TOML's reader takes 1.5 s for a MiB


def read_settings(path: str | Path) -> str:
    """The text of a file of settings or rules, at most `MAX_SETTINGS` bytes.

    Raises:
        BadInput: as `read_regular`.
        OSError: as `read_regular`.
        UnicodeDecodeError: it is no UTF-8.
    """
    return read_regular(path, MAX_SETTINGS).decode()


def read_regular(
    path: str | Path, limit: int, owners: Collection[int] | None = None, links: bool = True
) -> bytes:
    """All of a file of at most `limit` bytes.

    Raises:
        BadInput: as `open_regular`; it is larger, or a large file that is mostly holes.
        OSError: as `open_regular`.
    """
    fd = open_regular(path, owners, links)
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if status.st_size > limit:
            told = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
            raise BadInput(f"{path} is larger than {told}")
        if status.st_size > _HOLES and status.st_blocks * 512 < status.st_size // 2:
            raise BadInput(
                f"{path} has a size of {status.st_size >> 20} MiB, but most of it was never written"
            )
        return file.read(status.st_size)  # not the limit: so much would be reserved


def read_of_folder(path: Path, limit: int) -> bytes:
    """A small file of the user whose folder it is in: others may be able to write there.

    Raises:
        BadInput: another user's, no regular file, or larger.
        OSError: it is not there.
    """
    return read_regular(path, limit, {path.parent.stat().st_uid, os.geteuid()}, links=False)


def free_memory() -> int:
    """Bytes that can be had without swapping; 1 GiB if the kernel does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        lines = []
    told = next(
        (line.split()[1] for line in lines if line.startswith("MemAvailable:")), str(1 << 20)
    )
    return int(told) << 10


def users_of(pid: int) -> frozenset[int]:
    """The users that a process runs as: real, effective, saved, and for files; none where it is
    gone.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return frozenset()
    told = next((line.split()[1:] for line in lines if line.startswith("Uid:")), [])
    return frozenset(int(word) for word in told)


def of_one_user(folder: Path, files: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """(the files of one user, a note on those of others): in a folder that all may write to, anyone
    can add to a job's dumps.

    The user's own where there are some, else those of the user with the most; the folder's owner
    and root are believed anywhere.
    """
    try:
        shared = folder.stat()
        by_user = Counter(uid for path in files if (uid := path.stat().st_uid) != _ROOT)
    except OSError:
        return list(files), []
    if not shared.st_mode & stat.S_IWOTH or len(by_user) < 2:
        return list(files), []
    chosen = os.geteuid() if os.geteuid() in by_user else by_user.most_common(1)[0][0]
    kept = [path for path in files if is_of(path.stat().st_uid, {chosen})]
    others = [path for path in files if path not in set(kept)]
    return kept, [_left_out(folder, others, chosen)]


def _left_out(folder: Path, others: Iterable[Path], chosen: int) -> str:
    names = [path.name for path in others]
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return f"all users can write to {folder}: only files of user {chosen} are read, not those of others ({shown}). To read those, pass the files themselves."
