"""What ended runs may keep of the shared memory: their boxes trimmed to what they hold, and the
oldest runs not at all.

A run is ended when no process has one of its boxes mapped; numbers of processes do not decide,
since another container may share the folder. Trimming makes a copy of the same content without the
pages of zeros, so readers see no difference. This also runs in the job, at the start of a rank: it
takes a bounded time, and one process a machine does it at once.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from pathlib import Path

from . import format as fmt
from .folder import LAUNCH, REQUEST, field, is_running
from .still_written import has_writer
from .whose_error import suppress

SHARE = 0.05  # of the memory that is free, for all ended runs of a user together
KEEP_RUNS = 5  # the newest of them stay as long as they are no more than `SHARE_OF_NEWEST`
SHARE_OF_NEWEST = 0.25
_FORGOTTEN_NS = 7 * 24 * 3600 * 10**9
_SETTLED_NS = (
    120 * 10**9
)  # a run that is started anew in the same folder is not taken away between its ends and beginnings
_PAGE = 4096
_ZEROS = bytes(_PAGE)
_BESIDE = (*(suffix for suffix, _ in fmt.BESIDE), ".calls", ".sock")
_OURS = (fmt.SUFFIX, fmt.ENDS_SUFFIX, *_BESIDE)


class Ended:
    """One ended run; `beat_ns` is the last sign of life of its ranks, by the wall clock."""

    def __init__(self, folder: Path, files: list[Path], beat_ns: int) -> None:
        self.folder, self.files, self.beat_ns = folder, files, beat_ns
        self.size = sum(p.lstat().st_blocks for p in files) * 512


def tidy(root: Path, now_ns: int, seconds: float = 0.2) -> None:
    """Trim and take away what ended runs left below `root`, for no longer than that."""
    with suppress(OSError):
        found = root.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            return  # someone else has taken the place
        # The folder itself is the lock: a file would stay there, and show.
        lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(
                lock, fcntl.LOCK_EX | fcntl.LOCK_NB
            )  # held by another rank: that one does it
            _tidy(root, now_ns, time.monotonic() + seconds)
        finally:
            os.close(lock)


def _tidy(root: Path, now_ns: int, end: float) -> None:
    ended = []
    for folder in sorted(root.iterdir()):
        if time.monotonic() > end:
            return
        with suppress(OSError):  # it goes at this moment
            run = ended_run(folder, now_ns)
            if run is not None:
                ended.append(run)
    ended.sort(key=lambda run: -run.beat_ns)
    for run in ended:
        for path in run.files:
            if time.monotonic() > end:
                return
            with suppress(OSError):
                run.size -= trim(path)
    _remove_oldest(root, ended, now_ns)


def ended_run(folder: Path, now_ns: int) -> Ended | None:
    """The run of this folder if it has boxes, and none of them is in use."""
    if folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid != os.getuid():
        return None
    files = [p for p in folder.iterdir() if _is_ours(p)]
    beats = [_last_beat(p, now_ns) for p in files if p.suffix == fmt.SUFFIX]
    if not beats:  # of a program without Python
        beats = [_last_event(p) for p in files if p.suffix == fmt.NCCL_SUFFIX]
    known = [beat for beat in beats if beat is not None]
    if not known or len(known) < len(beats):
        return None
    return Ended(folder, files, max(known))


def _is_ours(path: Path) -> bool:
    """Whether it may be a file of ours, or the socket of a rank that was killed."""
    if path.is_symlink() or path.suffix not in _OURS:
        return False
    return path.is_socket() if path.suffix == ".sock" else path.is_file()


def runs(root: Path, now_ns: int) -> list[tuple[Path, Ended | None]]:
    """Folders below `root` that hold boxes of this user; None where a rank may be alive."""
    found: list[tuple[Path, Ended | None]] = []
    with suppress(OSError):
        for folder in sorted(root.iterdir()):
            with suppress(OSError):
                run = ended_run(folder, now_ns)
                if run is not None or _has_boxes(folder):
                    found.append((folder, run))
    return found


def _has_boxes(folder: Path) -> bool:
    own = not folder.is_symlink() and folder.is_dir() and folder.stat().st_uid == os.getuid()
    return own and any(folder.glob(f"*{fmt.SUFFIX}"))


def _last_beat(box: Path, now_ns: int) -> int | None:
    """When the process of this box last showed that it lives; None where it may still do, and for
    what is not a box.
    """
    held = has_writer(box)
    with box.open("rb") as file:
        head = file.read(fmt.HEADER_BYTES)
    if held or len(head) < fmt.HEADER_BYTES or not head.startswith(fmt.MAGIC) or is_running(head):
        return None
    beat = field(head, fmt.H_BEAT_WALL)
    if beat > now_ns:  # the clock was set back since
        beat = min(now_ns, box.stat().st_mtime_ns)
    # Where the file system does not tell who writes, only a long silence does.
    return beat if held is False or beat < now_ns - _FORGOTTEN_NS else None


def _last_event(path: Path) -> int | None:
    """When NCCL's plugin last wrote into its file; None where its process may still do."""
    return path.stat().st_mtime_ns if has_writer(path) is False else None


def trim(path: Path) -> int:
    """Free the pages of zeros of a file that no one writes to; how many bytes that were.

    Raises:
        OSError: it cannot be read, or there is no room for the copy; the file is then as before.
    """
    before = path.lstat()
    if (
        before.st_blocks * 512 < before.st_size
        or path.suffix == ".sock"
        or has_writer(path) is not False
    ):
        return 0  # trimmed already, or not to be touched
    data = path.read_bytes()
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = os.open(
            part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            for at in range(0, len(data), _PAGE):
                page = data[at : at + _PAGE]
                if page != _ZEROS:
                    os.pwrite(fd, page, at)
            os.ftruncate(fd, len(data))
            os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))
            freed = (before.st_blocks - os.fstat(fd).st_blocks) * 512
        finally:
            os.close(fd)
        if path.lstat().st_ino != before.st_ino:
            return 0  # a new process has the number of the old one
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)
    return freed


def _remove_oldest(root: Path, ended: list[Ended], now_ns: int) -> None:
    """`ended` begins with the newest."""
    space = os.statvfs(root)
    total = sum(run.size for run in ended)
    room = space.f_bavail * space.f_frsize + total  # as if they were not there
    while ended:
        oldest, total_before = ended.pop(), total
        total -= oldest.size
        age_ns = now_ns - oldest.beat_ns
        share = SHARE if len(ended) >= KEEP_RUNS else SHARE_OF_NEWEST
        too_much = (
            total_before > share * room and len(ended) > 0
        )  # the last one is why someone comes to look
        if age_ns > _SETTLED_NS and (too_much or age_ns > _FORGOTTEN_NS):
            remove(oldest)


def remove(run: Ended) -> None:
    """Take its files away, and its folder if nothing else lies in it."""
    with suppress(OSError):
        for path in [
            *run.files,
            run.folder / REQUEST,
            run.folder / LAUNCH,
            run.folder / "trace.json",
        ]:
            path.unlink(missing_ok=True)
        run.folder.rmdir()  # unless something of someone else's lies in it
