"""Members of a family that have ended: zombies that their parent started among the others.

A zombie keeps no environment, no command line and no connections, but its parent, its name and the
time of its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import psutil
from msgspec import Struct

from . import proc

_APART_S = 5.0  # a launcher starts one rank after another in less


class Started(Struct, frozen=True):
    """A process that its parent started: when, in clock ticks since the start of the host."""

    started: int
    pid: int


def zombies_among(parent: int, living: Sequence[Started], ticks_s: int) -> list[Started]:
    """Children of `parent` that have ended and were started like the living ones, oldest first.

    Between two of these any Python counts, since one may die before it imports a library, which
    renames it; before the first and after the last only one of the same name, and soon after.
    `ticks_s`: clock ticks a second.
    """
    names = {_name(member.pid) for member in living}
    first = min(member.started for member in living)
    last = max(member.started for member in living)
    apart = int(_APART_S * ticks_s)
    found: list[Started] = []
    for pid in _children(parent):
        fields = proc.stat_fields(pid)
        if len(fields) < 20 or fields[0] != "Z":
            continue
        began, name = int(fields[19]), _name(pid)
        amid = first <= began <= last and name.startswith("python")
        beside = first - apart <= began <= last + apart and name in names
        if amid or beside:
            found.append(Started(began, pid))
    return sorted(found, key=lambda one: (one.started, one.pid))


def _children(parent: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(parent).children()]
    except psutil.Error:
        return []


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""
