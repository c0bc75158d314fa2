"""Hang on request. The trainer calls `point` and `replaces` at its real operations; armed faults strike there.

With nothing armed a call costs one comparison.
"""

from __future__ import annotations

from typing import Any

from . import acts, collectives
from .spec import Fault

_armed: list[Fault] = []
_iteration = 0


def arm(faults: list[Fault], rank: int) -> None:
    """Keep the faults of this rank."""
    _armed[:] = [f for f in faults if f.rank == rank]


def at_iteration(number: int) -> None:
    global _iteration
    _iteration = number


def _due(where: str, iteration: int | None) -> Fault | None:
    now = _iteration if iteration is None else iteration
    for fault in _armed:
        reached = now >= fault.iteration if fault.kind == "slow" else now == fault.iteration
        if fault.where == where and reached:
            return fault
    return None


def point(where: str, iteration: int | None = None, **context: Any) -> bool:
    """Strike the fault that waits here, if one does. True: it did the operation's part; leave the operation out."""
    if not _armed:
        return False
    fault = _due(where, iteration)
    if fault is None:
        return False
    if fault.kind != "slow":
        _armed.remove(fault)
    return acts.strike(fault, context)


def know_groups(**groups: Any) -> None:
    """The trainer's groups by axis, for the fault that calls a collective on the wrong one."""
    collectives.known_groups.update({axis: g for axis, g in groups.items() if g is not None})


def armed_at(where: str) -> bool:
    """Whether a fault of this rank waits at this place, in whichever iteration."""
    return any(f.where == where for f in _armed)
