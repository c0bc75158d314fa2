"""What /proc shows of a process without its help: state, waits, CPU time, what it is blocked on.

All of it works on ranks that are stopped, dead or in uninterruptible I/O. Formats: proc(5).
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

from ..model.capture import ProcessSample, ThreadSample
from ..text import redaction
from ..text.plain import readable
from ..text.ranges import number_in

_MOST_ABOVE = 64  # processes one above the other
_WORDS = 60  # of a command line
_TICK = os.sysconf("SC_CLK_TCK")
# Numbers of the system calls that a stuck process is found in; others are shown by number.
_CALLS_X86_64 = {
    0: "read",
    1: "write",
    7: "poll",
    17: "pread64",
    18: "pwrite64",
    19: "readv",
    20: "writev",
    23: "select",
    34: "pause",
    35: "nanosleep",
    42: "connect",
    43: "accept",
    44: "sendto",
    45: "recvfrom",
    46: "sendmsg",
    47: "recvmsg",
    61: "wait4",
    72: "fcntl",
    73: "flock",
    74: "fsync",
    75: "fdatasync",
    202: "futex",
    230: "clock_nanosleep",
    232: "epoll_wait",
    247: "waitid",
    257: "openat",
    262: "newfstatat",
    270: "pselect6",
    271: "ppoll",
    281: "epoll_pwait",
    288: "accept4",
    2: "open",
}
_CALLS_ARM64 = {
    63: "read",
    64: "write",
    65: "readv",
    66: "writev",
    72: "pselect6",
    73: "ppoll",
    82: "fsync",
    83: "fdatasync",
    98: "futex",
    101: "nanosleep",
    115: "clock_nanosleep",
    22: "epoll_pwait",
    25: "fcntl",
    56: "openat",
    203: "connect",
    202: "accept",
    206: "sendto",
    207: "recvfrom",
    211: "sendmsg",
    212: "recvmsg",
    260: "wait4",
    95: "waitid",
    32: "flock",
}
_CALLS = _CALLS_X86_64 if platform.machine() == "x86_64" else _CALLS_ARM64
_ON_FILE = {
    "read",
    "write",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "fsync",
    "fdatasync",
    "flock",
    "fcntl",
    "recvfrom",
    "sendto",
    "recvmsg",
    "sendmsg",
    "accept",
    "accept4",
    "connect",
}
_POLLS = {"poll", "ppoll"}  # of `struct pollfd`s, which begin with a descriptor


def _read(path: str) -> str:
    """The file's text; an empty string where it is gone or not ours to read."""
    try:
        return Path(path).read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def stat_fields(pid: int, tid: int | None = None) -> list[str]:
    """Fields of /proc/PID/stat from `state` on (index 0 is field 3 of proc(5)); empty where the
    process is gone.
    """
    path = f"/proc/{pid}/stat" if tid is None else f"/proc/{pid}/task/{tid}/stat"
    # The command's name may hold spaces and parentheses: fields count from the last one.
    return _read(path).rpartition(")")[2].split()


def status_fields(pid: int) -> dict[str, str]:
    """/proc/PID/status as {name: value}; empty where the process is gone."""
    lines = (line.partition(":") for line in _read(f"/proc/{pid}/status").splitlines())
    return {name: value.strip() for name, _, value in lines}


def above(pid: int) -> list[int]:
    """The processes above one, nearest first, without the first process of the host."""
    found: list[int] = []
    while len(found) < _MOST_ABOVE:
        fields = stat_fields(pid)
        pid = int(fields[1]) if len(fields) > 1 else 0
        if pid <= 1:
            break
        found.append(pid)
    return found


def command_line(pid: int) -> list[str]:
    """Its first words, without credentials; empty where the process is gone."""
    words = [readable(word) for word in _read(f"/proc/{pid}/cmdline").split("\0")[:_WORDS]]
    return redaction.arguments(words[:-1] if words[-1] == "" else words)


def syscall_of(pid: int, tid: int) -> str:
    """The system call that a thread is blocked in, with the file of its descriptor: ``read(5 ->
    /data/x)``. "" where it is in none (the kernel says -1: in a page fault, or stopped on its way
    back), runs, or cannot be read.
    """
    words = _read(f"/proc/{pid}/task/{tid}/syscall").split()
    number = number_in(words[0]) if words else -1
    if number < 0 or len(words) < 2:
        return ""
    name = _CALLS.get(number, f"syscall {number}")
    fd = _descriptor(pid, name, words[1:])
    if fd < 0:
        return name
    try:
        return f"{name}({fd} -> {readable(str(Path(f'/proc/{pid}/fd/{fd}').readlink()))})"
    except OSError:
        return f"{name}({fd})"


def _descriptor(pid: int, name: str, arguments: list[str]) -> int:
    """The file that a call is about: its first argument, or the only one that a poll waits for; -1
    where there is none.
    """
    if name in _ON_FILE:
        return int(arguments[0], 16)
    if name not in _POLLS or int(arguments[1], 16) != 1:
        return -1
    try:
        with Path(f"/proc/{pid}/mem").open("rb") as memory:
            memory.seek(int(arguments[0], 16))
            return int.from_bytes(memory.read(4), "little", signed=True)
    except (OSError, ValueError, OverflowError):
        return -1


def _switches(pid: int, tid: int) -> int:
    total, seen = 0, False
    for line in _read(f"/proc/{pid}/task/{tid}/status").splitlines():
        if "ctxt_switches" in line:
            total, seen = total + int(line.split()[-1]), True
    return total if seen else -1


def sample_thread(pid: int, tid: int, detail: bool = True) -> ThreadSample | None:
    """One thread now, without its stack; None where it is gone.

    `detail` adds wait channel, call and switches.
    """
    fields = stat_fields(pid, tid)
    if len(fields) < 13:
        return None
    sample = ThreadSample(
        tid=tid, state=fields[0], cpu_s=(int(fields[11]) + int(fields[12])) / _TICK
    )
    if detail:
        wchan = _read(f"/proc/{pid}/task/{tid}/wchan")
        sample.wchan = "" if wchan == "0" else wchan
        sample.syscall = syscall_of(pid, tid)
        sample.switches = _switches(pid, tid)
        sample.read_bytes, sample.write_bytes = _io(f"/proc/{pid}/task/{tid}/io")
    return sample


def thread_ids(pid: int) -> list[int]:
    """The threads of a process, ascending; empty where it is gone."""
    try:
        return sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return []


# Beyond this many threads only their state is read: the rest would cost more than it shows.
_DETAILED_THREADS = 64


def sample_process(pid: int, at_s: float) -> ProcessSample:
    """State of a process and of all its threads, without stacks; state "" where it is gone."""
    fields = stat_fields(pid)
    if len(fields) < 13:
        return ProcessSample(at_s=at_s, state="")
    tids = thread_ids(pid)
    threads = [sample_thread(pid, tid, detail=i < _DETAILED_THREADS) for i, tid in enumerate(tids)]
    read, write = _io(f"/proc/{pid}/io")
    return ProcessSample(
        at_s=at_s,
        state=fields[0],
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICK,
        read_bytes=read,
        write_bytes=write,
        threads=[t for t in threads if t is not None],
    )


def _io(path: str) -> tuple[int, int]:
    """Bytes through read() and write() calls so far; -1 where not permitted."""
    values = dict(line.split(": ", 1) for line in _read(path).splitlines() if ": " in line)
    return int(values.get("rchar", -1)), int(values.get("wchar", -1))


def exit_code(pid: int) -> int | None:
    """Exit code of a zombie; negative for a signal. None where it is alive, gone or not ours."""
    fields = stat_fields(pid)
    if len(fields) < 50 or fields[0] not in "ZX":
        return None
    status = int(fields[49])
    return -(status & 0x7F) if status & 0x7F else status >> 8


def is_frozen(pid: int) -> bool:
    """True where the process's cgroup is frozen (v2 `cgroup.freeze`, v1 freezer)."""
    for line in _read(f"/proc/{pid}/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers and "frozen 1" in _read(f"/sys/fs/cgroup{path}/cgroup.events"):
            return True
        if controllers == "freezer" and _read(
            f"/sys/fs/cgroup/freezer{path}/freezer.state"
        ).strip() in (
            "FROZEN",
            "FREEZING",
        ):
            return True
    return False


def oom_kills(pid: int) -> int:
    """Processes that the kernel killed for memory in the cgroup of `pid`; 0 if unknown."""
    for line in _read(f"/proc/{pid}/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        base = f"/sys/fs/cgroup{path}" if not controllers else f"/sys/fs/cgroup/memory{path}"
        if controllers not in ("", "memory"):
            continue
        for name in ("memory.events", "memory.oom_control"):
            for entry in _read(f"{base}/{name}").splitlines():
                if entry.startswith("oom_kill "):
                    return int(entry.split()[1])
    return 0
