"""Ranks without a rank in their environment, as multiprocessing, ignite and Ray start them: where they
have the probe, their black box shows the rank; where not, which processes a person may name.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import psutil

from ..text.ranges import MAX_RANKS
from . import box_folders, proc
from .box_header import BlackBox

FOLDER = b"HANGDOCTOR_DIR="
_SPAWNED = "--multiprocessing-fork"  # on the command line of what `spawn` and `forkserver` start
_MOST = 64  # processes in one line of help


def box_of(pid: int, environ: bytes) -> BlackBox | None:
    """The black box of a process that joined a group: it has the rank that the environment lacks.

    `environ` is /proc/PID/environ. None without a box that can be believed, or before it has a rank.
    """
    told = next((e for e in environ.split(b"\0") if e.startswith(FOLDER)), b"")[len(FOLDER) :]
    return box_in(os.fsdecode(told), pid)


def box_in(told: str, pid: int) -> BlackBox | None:
    """As `box_of`, of a process whose HANGDOCTOR_DIR is `told`."""
    if not told:
        return None
    folder = box_folders.named_folder(told, pid)
    box = box_folders.box_of_process(folder, pid)
    if box is None or not 0 <= box.rank < min(box.world_size, MAX_RANKS):
        return None
    return box


def started_by_multiprocessing(uid: int | None) -> tuple[int, list[int]]:
    """(the parent, its children in the order of their start) of the most processes that one
    process has started by multiprocessing; (0, []) where there are none. `uid`: only this user's.
    """
    children: dict[int, list[int]] = defaultdict(list)
    for pid in psutil.pids():
        if _is_spawned(pid, uid):
            fields = proc.stat_fields(pid)
            if len(fields) > 1:
                children[int(fields[1])].append(pid)
    if not children:
        return 0, []
    parent = max(children, key=lambda pid: len(children[pid]))
    return parent, sorted(children[parent])[:_MOST]


def _is_spawned(pid: int, uid: int | None) -> bool:
    folder = Path(f"/proc/{pid}")
    try:
        if uid is not None and folder.stat().st_uid != uid:
            return False
        return _SPAWNED in (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False  # it ended meanwhile


def by_hand(uid: int | None, node: str) -> str:
    """How to name the processes that a person may mean; "" where there are none."""
    parent, pids = started_by_multiprocessing(uid)
    if len(pids) < 2:
        return ""
    flags = " ".join(f"--pid {pid}" for pid in pids)
    return (
        f"Process {parent} started {len(pids)} processes by multiprocessing, without a rank in their "
        f"environment. If they are the ranks, on {node}: hangdoctor dump {flags}. Jobs started with "
        "hangdoctor run -- CMD are found without this."
    )
