"""What keeps the probe's own threads and files out of the job's way.

A thread of ours must not take a signal that the job waits for or blocks. A descriptor of ours must
not have a standard stream's number, and must not be closed when that number may be another file's.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import io
import mmap
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_STACK = 1 << 20  # bytes; the job may have set a size that is enough for its own threads only
_SEMAPHORE = 64  # bytes: a sem_t has 32, by sem_init(3) of glibc and musl
_STREAMS = 3
_FILES = 32  # that would fit where each takes its share: a box and a ring of sixteen ranks
# A fault's signal goes to the thread that made it, whether it is blocked or not.
_FAULTS = {
    getattr(signal, name)
    for name in ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS", "SIGABRT")
    if hasattr(signal, name)
}
_lasting: list[mmap.mmap] = []


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Threads that are made meanwhile take no signals; what comes meanwhile is delivered
    afterwards.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_thread(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Start a thread that takes no signals, on a stack of its own size; `threading` does not know
    of it.

    Raises:
        RuntimeError: no more threads can be had.
    """
    with signals_blocked():
        before = _thread.stack_size(_STACK)
        try:
            _thread.start_new_thread(function, arguments)
        finally:
            _thread.stack_size(before)


def can_have(count: int) -> bool:
    """Whether so many more threads can be had now, with stacks of the usual size: by having them for a
    moment.

    What counts against a limit (of a user, of a cgroup, of memory) is not known in advance.
    """
    import ctypes

    libc = ctypes.CDLL(None)
    made: list[ctypes.c_size_t] = []
    until = ctypes.create_string_buffer(_SEMAPHORE)
    wait = ctypes.cast(libc.sem_wait, ctypes.c_void_p)
    libc.sem_init(until, 0, 0)
    with signals_blocked():
        for _ in range(count):
            thread = ctypes.c_size_t()
            if libc.pthread_create(ctypes.byref(thread), None, wait, until):
                break
            made.append(thread)
    for _ in made:
        libc.sem_post(until)
    for thread in made:
        libc.pthread_join(thread, None)
    libc.sem_destroy(until)
    return len(made) == count


@contextlib.contextmanager
def streams_taken(fd: int) -> Iterator[None]:
    """Descriptors that are made meanwhile get numbers behind those of the standard streams, should
    the job have closed them.
    """
    held: list[int] = []
    try:
        while not held or held[-1] < _STREAMS:
            held.append(os.dup(fd))
        os.close(held.pop())
        yield
    finally:
        for number in held:
            os.close(number)


def reserve(fd: int, size: int) -> None:
    """Have the memory of a file now: a page that cannot be had later would be a SIGBUS in the job.

    Raises:
        OSError: no room, or the job's files may not become that large; asking for it then could be
            a SIGXFSZ. As much again must be left: the job's own shared memory is on the same file
            system.
    """
    if _largest_file() < size:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    if free_bytes(os.fstatvfs(fd)) < 2 * size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.posix_fallocate(fd, 0, size)


def free_bytes(space: os.statvfs_result) -> int:
    """What this user may still write; very much where the file system does not say."""
    return space.f_bavail * space.f_frsize if space.f_blocks else 1 << 62


def share_of(folder: Path, usual: int, least: int) -> int:
    """The size of a file of ours there: the usual one, less where that leaves the job little room.

    Shared memory that fills up is a SIGBUS in whoever uses it, and all ranks of a node make their files at once.
    """
    return min(usual, max(least, free_bytes(os.statvfs(folder)) // _FILES))


def _largest_file() -> float:
    """RLIMIT_FSIZE in bytes, infinity without one.

    Not by the module `resource`: torch does not load it, so that a `resource.py` beside the job's
    script would be run.
    """
    # Not `open`, which security tools wrap.
    with io.open("/proc/self/limits", encoding="ascii") as limits:  # noqa: UP020
        for line in limits:
            if line.startswith("Max file size"):
                soft = line.split()[3]
                return float("inf") if soft == "unlimited" else float(soft)
    return float("inf")


def map_file(fd: int, size: int, flags: int = mmap.MAP_SHARED) -> mmap.mmap:
    """Map a file for as long as the process lives, without a descriptor.

    Python gives each mapping one of its own, and closes that number when the mapping is freed, in a
    forked child or at the end. The job may have closed it, as daemons close all, and have a file of
    its own under it by then.

    Raises:
        OSError: no memory, no descriptor.
    """
    spare = os.dup(fd)
    os.close(spare)
    made = mmap.mmap(fd, size, flags=flags)
    _lasting.append(made)
    with contextlib.suppress(ImportError):
        import ctypes

        ctypes.pythonapi.Py_IncRef(
            ctypes.py_object(made)
        )  # never freed, so never closed by its number
        if spare != fd and _same_file(
            spare, fd
        ):  # else another thread was faster: the descriptor stays
            os.close(spare)
    return made


def _same_file(one: int, other: int) -> bool:
    try:
        return os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:
        return False
