"""Whether the request in a job's folder was made in this run of the job, or is left from one that
ended badly.

A rank asks once, when it comes up. What is written later it has seen come, and obeys.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from .. import format as fmt
from ..folder import field, is_running
from ..identity import boot_id, boot_offset_ticks, start_ticks
from .request import is_launcher

_SLACK_S = 0.1  # the time of a file is that of the kernel's last tick, and so a little early
_BEATS_S = 120.0  # a shared file system may show another node's heartbeat that late


def began_before(folder: Path, made_s: float) -> bool:
    """True where something of this run was there at that time: a rank with its box in the folder,
    or a launcher that restarts its ranks.

    Such a launcher (torchrun and similar ones) outlives the ranks that it restarts,
    and ends with its job.
    """
    there = made_s + _SLACK_S
    return any(made <= there for made in _boxes(folder)) or any(
        began <= there for began in _launchers()
    )


def _boxes(folder: Path) -> Iterator[float]:
    """When each box of a living rank was made; that of this process is among them."""
    for path in folder.glob(f"*{fmt.SUFFIX}"):
        try:
            with path.open("rb") as file:
                head = file.read(fmt.HEADER_BYTES)
        except OSError:
            continue  # it ended well just now
        if (
            len(head) == fmt.HEADER_BYTES
            and head.startswith(fmt.MAGIC)
            and (is_running(head) or _beats_elsewhere(head))
        ):
            yield field(head, fmt.H_CREATED_WALL) / 1e9


def _beats_elsewhere(head: bytes) -> bool:
    """Of another node, in a folder that the nodes share: whether it has shown life of late."""
    boot = head[fmt.H_BOOT_ID[0] : fmt.H_BOOT_ID[0] + 16]
    return boot != boot_id() and time.time() - field(head, fmt.H_BEAT_WALL) / 1e9 < _BEATS_S


def _launchers() -> Iterator[float]:
    """When each launcher above this process began, in seconds since the epoch."""
    offset_s = boot_offset_ticks() / os.sysconf("SC_CLK_TCK")  # in the clock, not in start_ticks
    booted = time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - offset_s)
    pid = os.getppid()
    while pid > 1:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        except OSError:
            return  # gone, or hidden from us
        if is_launcher(words):
            yield booted + start_ticks(pid) / os.sysconf("SC_CLK_TCK")
        pid = int(stat[stat.rindex(")") + 2 :].split()[1])
