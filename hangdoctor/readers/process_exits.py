"""How processes that are not one's own children have ended: exit code or signal, core dump, lack of memory.

A process is waited for through its pidfd. Its code is read from /proc while it is a zombie, or from
the pidfd when its own parent was faster (Linux 6.15 and later). Nothing is asked of the processes
themselves.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import threading
import time
from pathlib import Path

from msgspec import Struct

from ..text.late import late

_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, 64 bytes): include/uapi/linux/pidfd.h
_INFO_EXIT = 1 << 3
_INFO = struct.Struct("<QQ11Ii")
_KERNEL_LOG = Path("/dev/kmsg")
_KERNEL_LINES = 20_000  # that are looked through
_OOM = late(rb"[Oo]ut of memory: Kill(?:ed)? process (\d{1,9}) ")


class Exit(Struct, frozen=True):
    """One process that has ended; a negative code is the signal that ended it."""

    code: int
    at: float  # seconds since the epoch
    core: bool = False
    out_of_memory: bool = False  # the kernel killed it for lack of memory


class Followed(Struct):
    """A process that runs."""

    pid: int
    fd: int
    began: float  # when it was first seen, seconds since the epoch
    group: Path | None  # the file that counts kills for lack of memory in its control group
    kills: int

    def exit(self, now: float) -> Exit | None:
        """How it ended, where that can be known."""
        status = exit_status(self.pid, self.fd)
        if status is None:
            return None
        code = os.waitstatus_to_exitcode(status & ~0x80 if os.WIFSIGNALED(status) else status)
        return Exit(code, now, os.WCOREDUMP(status), code == -9 and self.lacked_memory())

    def lacked_memory(self) -> bool:
        """Whether its control group or the kernel's log counts a kill for lack of memory."""
        return kills_in(self.group) > self.kills or in_kernel_log(self.pid)


def follow(pid: int) -> Followed:
    """Take a process in.

    Raises:
        OSError: there is no such process, or this system has no pidfd.
    """
    group = memory_group(pid)
    return Followed(pid, os.pidfd_open(pid), time.time(), group, kills=kills_in(group))


class ExitWatch:
    """Waits in a thread for processes to end, and remembers how each of them did."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._lock = threading.Lock()
        self._followed: dict[int, Followed] = {}  # by pidfd
        self._exits: dict[int, Exit] = {}
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll.register(self._bell, select.EPOLLIN)
        self._thread: threading.Thread | None = None

    def follow(self, pid: int) -> None:
        """Take a process in; one that has ended already is left out."""
        with self._lock, contextlib.suppress(OSError):
            followed = follow(pid)
            self._exits.pop(pid, None)
            self._followed[followed.fd] = followed
            self._poll.register(followed.fd, select.EPOLLIN)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="exits", daemon=True)
                self._thread.start()

    def of(self, pid: int) -> Exit | None:
        """How a process ended; None where it runs, or no one could see it."""
        with self._lock:
            return self._exits.get(pid)

    def close(self) -> None:
        """Wait for none any more."""
        if self._thread is None:
            self._give_back()
            return
        with contextlib.suppress(OSError):
            os.eventfd_write(self._bell, 1)

    def _run(self) -> None:
        while True:
            ready = {fd for fd, _ in self._poll.poll()}
            now = time.time()
            with self._lock:
                for fd in ready & self._followed.keys():
                    self._ended(fd, now)
                if self._bell in ready:
                    self._give_back()
                    return

    def _ended(self, fd: int, now: float) -> None:
        followed = self._followed.pop(fd)
        ended = followed.exit(now)
        self._poll.unregister(fd)
        os.close(fd)
        if ended is not None:
            self._exits[followed.pid] = ended

    def _give_back(self) -> None:
        for fd in self._followed:
            os.close(fd)
        self._followed.clear()
        self._poll.close()
        os.close(self._bell)


def exit_status(pid: int, fd: int) -> int | None:
    """The wait status of an ended process, `fd` its pidfd; None where its parent was faster, on old
    kernels.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        fields = stat[stat.rindex(")") + 2 :].split()
        if fields[0] in "ZX":
            return int(fields[49])
    with contextlib.suppress(OSError):
        info = bytearray(_INFO.pack(_INFO_EXIT, 0, *[0] * 11, 0))
        fcntl.ioctl(fd, _GET_INFO, info)
        mask, *_, status = _INFO.unpack(info)
        if mask & _INFO_EXIT:
            return int(status)
    return None


def memory_group(pid: int) -> Path | None:
    """The file that counts kills for lack of memory in the control group of a process."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            if names == "":
                return Path("/sys/fs/cgroup" + path, "memory.events")
            if "memory" in names.split(","):
                return Path("/sys/fs/cgroup/memory" + path, "memory.oom_control")
    return None


def kills_in(file: Path | None) -> int:
    """Kills for lack of memory that such a file counts; 0 where it cannot be read."""
    if file is not None:
        with contextlib.suppress(OSError, ValueError):
            for line in file.read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def in_kernel_log(pid: int, log: Path = _KERNEL_LOG) -> bool:
    """Whether the kernel's log, where it may be read, has the process killed for lack of memory."""
    try:
        fd = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        for _ in range(_KERNEL_LINES):
            record = _record(fd)
            if not record:
                return False
            if any(int(match[1]) == pid for match in _OOM.finditer(record)):
                return True
    finally:
        os.close(fd)
    return False


def _record(fd: int) -> bytes:
    """The next record of the kernel's log, which comes one a read; empty at its end."""
    while True:
        try:
            return os.read(fd, 8192)
        except BrokenPipeError:
            continue  # records were overwritten meanwhile: the next is the oldest that is left
        except OSError:
            return b""
