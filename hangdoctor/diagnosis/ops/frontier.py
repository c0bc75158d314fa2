"""The frontier of a rank: the earliest incomplete operation of each of its threads or streams."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from ...model.operations import Operation, RankOps
from .keys import P2P_NAMES


class Frontier(Struct, gc=False):
    """Where one rank is.

    `open` is all that has not completed, `active` what the rank has arrived at, `blocking` what
    keeps it from going on.
    """

    open: list[Operation]
    active: list[Operation]
    blocking: list[Operation]
    lost: bool = False  # the record of where it is has been overwritten


def open_operations(ops: RankOps) -> list[Operation]:
    """What the rank has begun and not ended."""
    if ops.finished:
        return []
    return ops.unfinished()


def find_frontier(ops: RankOps, opened: list[Operation], runs: bool) -> Frontier:
    """The frontier of a rank whose calls are where its host is; `opened` is what has not
    completed.

    `runs`: the rank is known to be outside any communication, so that the handles which it holds do
    not keep it.
    """
    if not opened:
        return Frontier(opened, opened, opened)
    blocking = [o for o in opened if not o.asynchronous]
    if not blocking and not runs:
        blocking = _waited_for(opened)
    return Frontier(opened, opened, blocking)


def _waited_for(opened: list[Operation]) -> list[Operation]:
    """Of handles that are held, those that keep the rank: where it waits for one now, its other
    sends and receives may have ended, which shows only when it waits for them.
    """
    if not any(o.waited for o in opened):
        return opened
    kept = [o for o in opened if o.waited or o.op not in P2P_NAMES]
    return opened if len(kept) == len(opened) else kept


def device_frontier(
    ops: RankOps, opened: list[Operation], starts_known: bool, beside: Callable[[Operation], bool]
) -> Frontier:
    """The frontier of a rank whose host enqueues and goes on.

    A device takes the operations of one group in order, and over all groups what the program waits
    for; `beside` shows which operations it does not wait for. `starts_known`: the recorder sees
    operations start on the device.
    """
    if not opened:
        return Frontier(opened, opened, opened)
    oldest = opened[0]
    overwritten = ops.overwritten and not ops.only_active
    if overwritten and oldest is ops.operations[0] and oldest.state == "entered":
        return Frontier(opened, [], [], lost=True)
    if starts_known:
        active = [op for op in opened if op.state == "started"]
    else:
        active = _reached(opened, beside)
    return Frontier(opened, active, active)


def _reached(opened: list[Operation], beside: Callable[[Operation], bool]) -> list[Operation]:
    """What the device must have come to: of each queue the first operation, up to one that blocks
    all that follows.
    """
    active: list[Operation] = []
    queues: set[tuple[str, int]] = set()
    held = False
    for op in opened:
        queue = (op.group, op.peer if op.op in P2P_NAMES else -1)
        first = not held and queue not in queues
        if first or op.state == "started":
            active.append(op)
        queues.add(queue)
        held = held or not beside(op)
    return active
