"""Who this process is: rank and world from the environment, start time, boot, job. Standard library
only.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from .launch_variables import place_of

_SESSION = "session-"
_FIRST_NAMESPACE = (
    0xEFFFFFFC  # of processes, outside of containers (include/linux/proc_ns.h, PROC_PID_INIT_INO)
)


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        number = int(environ.get(name, ""))
    except ValueError:
        return -1
    return number if number < 1 << 31 else -1


def megabytes(environ: Mapping[str, str], name: str, usual: float) -> float:
    """A size from the environment; the usual one where it says nothing or no number: a typing error
    costs no record.
    """
    try:
        told = float(environ.get(name, ""))
    except ValueError:
        return usual
    return told if 0 < told < 1 << 30 else usual


def ranks_from(environ: Mapping[str, str]) -> tuple[int, int, int]:
    """Rank, world size and local rank; -1 if unknown."""
    place = place_of(environ, _number)
    return (place.rank, place.size, place.local_rank) if place else (-1, -1, -1)


def job_key(environ: Mapping[str, str]) -> str:
    """A name that all ranks of one job on this node agree on, fit for a folder."""
    if environ.get("SLURM_JOB_ID"):
        key = f"slurm-{environ['SLURM_JOB_ID']}.{environ.get('SLURM_STEP_ID') or 'x'}"
    elif environ.get("PBS_JOBID"):
        key = f"pbs-{environ['PBS_JOBID']}"
    elif environ.get("MASTER_PORT"):
        run = environ.get("TORCHELASTIC_RUN_ID") or "run"
        key = f"{run}-{environ.get('MASTER_ADDR', 'localhost')}-{environ['MASTER_PORT']}"
    else:
        key = f"{_SESSION}{os.getsid(0)}"
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in key)[:100].lstrip(".") or "job"


def is_of_session(key: str) -> bool:
    """Whether a job has its name from the session of this process alone, as no launcher says one."""
    return key.startswith(_SESSION)


def process_name(pid: int) -> str:
    """A process's number as part of a file's name. Containers that count processes by themselves
    may share a folder (and a host name): to keep their files apart, the namespace is added.
    """
    try:
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        space = _FIRST_NAMESPACE
    return str(pid) if space == _FIRST_NAMESPACE else f"{pid}-{space}"


def start_ticks(pid: int | str = "self") -> int:
    """When a process started, in clock ticks since the boot (proc(5), stat field 22); 0 if gone or
    a zombie.

    The same number in every time namespace: the kernel adds the reader's offset, which is taken off
    again.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return 0
    fields = stat[stat.rindex(")") + 2 :].split()
    return 0 if fields[0] in "ZX" else int(fields[19]) - boot_offset_ticks()


def boot_offset_ticks() -> int:
    """How far this process's time namespace sets the time since the boot ahead
    (time_namespaces(7)); usually 0.
    """
    try:
        lines = Path("/proc/self/timens_offsets").read_text("ascii").splitlines()
    except OSError:  # a kernel without time namespaces
        return 0
    for line in lines:
        name, seconds, nanoseconds = line.split()
        if name in ("boottime", "7"):
            told_ns = int(seconds) * 10**9 + int(nanoseconds)
            return told_ns * os.sysconf("SC_CLK_TCK") // 10**9
    return 0


def boot_id() -> bytes:
    """16 bytes that change with every boot; zeros if unknown."""
    try:
        return bytes.fromhex(
            Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip().replace("-", "")
        )
    except (OSError, ValueError):
        return bytes(16)


def host() -> str:
    """The name of this host, as boxes have it."""
    return socket.gethostname()
