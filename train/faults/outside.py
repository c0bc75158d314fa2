"""What is done to a process from outside: stopped, frozen, on a file system that does not answer.

Each is a block: what it did is taken back at the block's end, whatever happens in it. For tests and
benchmarks; the trainer itself uses `acts` alone. Nodes are broken by `scripts/lab/cluster-node`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_MNT_DETACH = 2  # umount2(2)


class NotPossible(OSError):
    """This machine or this user cannot do it; the message says what is missing."""


def _until(condition: Callable[[], bool], what: str, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.01)


def _states(pid: int) -> set[str]:
    """States of all its threads; empty where it is gone."""
    found = set()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            found.add(stat.read_text().rpartition(")")[2].split()[0])
    return found


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """SIGSTOP to processes, waits until all of their threads are stopped; SIGCONT at the end."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        for pid in pids:
            _until(lambda pid=pid: _states(pid) == {"T"}, f"process {pid} is stopped")
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def frozen(*pids: int) -> Iterator[None]:
    """Processes in a control group that is frozen, as a suspended Slurm job is; thawed at the end.

    Raises:
        NotPossible: no freezer, or no right to make a control group.
    """
    freezer = _CGROUPS / "freezer"  # version 1
    base, switch, on, off = freezer, "freezer.state", "FROZEN", "THAWED"
    if not freezer.is_dir():
        base, switch, on, off = _CGROUPS, "cgroup.freeze", "1", "0"
    homes = {pid: base / _group_of(pid, freezer.is_dir()).lstrip("/") for pid in pids}
    try:
        group = Path(tempfile.mkdtemp(prefix="hangdoctor-frozen-", dir=base))
    except OSError as error:
        raise NotPossible(f"no control group can be made: {error}") from error
    try:
        if not (group / switch).exists():
            raise NotPossible(f"control groups under {base} have no {switch}")
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        (group / switch).write_text(on)
        _until(lambda: _is_frozen(group, switch), f"{group} is frozen")
        yield
    finally:
        if (group / switch).exists():
            (group / switch).write_text(off)
        for pid, home in homes.items():
            with contextlib.suppress(OSError):  # it has ended
                (home / "cgroup.procs").write_text(str(pid))
        _until(lambda: _removed(group), f"{group} is empty")


def _group_of(pid: int, version_1: bool) -> str:
    """Path of its control group below the root of the freezer's (version 1) or of all (2)."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == ("freezer" if version_1 else ""):
            return path
    return "/"


def _is_frozen(group: Path, switch: str) -> bool:
    if switch == "freezer.state":
        return (group / switch).read_text().strip() == "FROZEN"
    return "frozen 1" in (group / "cgroup.events").read_text()


def _removed(group: Path) -> bool:
    with contextlib.suppress(OSError):  # its last process is about to go
        group.rmdir()
    return not group.exists()


@contextlib.contextmanager
def silent_file_system(folder: Path) -> Iterator[Path]:
    """A new folder on a file system that answers nothing: FUSE without a server.

    Whoever looks into it waits until the block's end, then gets an error.

    Raises:
        NotPossible: no FUSE, or no right to mount.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        raise NotPossible(f"needs FUSE: {error}") from error
    folder.mkdir()
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if libc.mount(b"silent", bytes(folder), b"fuse", 0, options.encode()):
        os.close(device)
        raise NotPossible(f"needs the right to mount: {os.strerror(ctypes.get_errno())}")
    try:
        yield folder
    finally:
        os.close(device)
        libc.umount2(bytes(folder), _MNT_DETACH)
