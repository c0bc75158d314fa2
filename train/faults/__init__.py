"""Hang on request. The trainer calls `point` at its real operations; armed faults strike there.

With nothing armed a call costs one comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import striking
from .spec import OUTSIDE, Fault

# Faults that strike at the last operation of their kind in the iteration. After any earlier one the
# ranks would go on, one operation apart, until two of different sizes meet, and gloo aborts on
# those.
AT_LAST = {("skip", "tp"), ("extra", "tp")}

_armed: list[Fault] = []
_iteration = 0
_calls: dict[str, int] = {}  # passes of each place in this iteration
_calls_before: dict[str, int] = {}  # the same in the iteration before


def arm(faults: list[Fault], rank: int) -> None:
    """Keep the faults of this rank."""
    _armed[:] = [f for f in faults if f.rank == rank]


def at_iteration(number: int) -> None:
    """Tell the faults which iteration begins: they count calls from there."""
    global _iteration
    _iteration = number
    _calls_before.clear()
    _calls_before.update(_calls)
    _calls.clear()


@contextmanager
def beside_the_step() -> Iterator[None]:
    """Operations of an evaluation: not counted, for the last one of the next iteration would never
    be reached.
    """
    before = dict(_calls)
    try:
        yield
    finally:
        _calls.clear()
        _calls.update(before)


def _due(where: str, iteration: int | None) -> Fault | None:
    now = _iteration if iteration is None else iteration
    for fault in _armed:
        reached = now >= fault.iteration if fault.kind == "slow" else now == fault.iteration
        reached = reached or where in OUTSIDE
        if (fault.kind, where) in AT_LAST and _calls[where] < _calls_before.get(where, 0):
            continue
        if fault.where == where and reached:
            return fault
    return None


def point(where: str, iteration: int | None = None, **context: Any) -> bool:
    """Strike the fault that waits here, if one does.

    True: it did the operation's part; leave the operation out.
    """
    if not _armed:
        return False
    _calls[where] = _calls.get(where, 0) + 1
    fault = _due(where, iteration)
    if fault is None:
        return False
    if fault.kind != "slow":
        _armed.remove(fault)
    return striking.strike(fault, context)


def armed_at(where: str) -> bool:
    """Whether a fault of this rank waits at this place, in whichever iteration."""
    return any(f.where == where for f in _armed)
