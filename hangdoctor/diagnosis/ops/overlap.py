"""Which operations run beside the others on a device, learnt from what completed before them.

A recorder that sees a device does not tell whether the program waits for an operation before the
next one: NCCL calls all return at once. But where one of another group, enqueued later, has
completed and it has not, nothing waits for it.
"""

from __future__ import annotations

from ...model.operations import Operation, RankOps
from .group_members import GroupTable, Role
from .keys import P2P_NAMES

Call = tuple[Role, str, str]  # the group's role, the operation, the line


def call_of(groups: GroupTable, op: Operation) -> Call:
    """What makes two operations the same call of the program."""
    return (groups.role(op.group), op.op, op.site)


def flags_tell(opened: list[Operation]) -> bool:
    """Whether the recorder's own mark shows what the program waits for."""
    return not all(o.asynchronous for o in opened)


def overlapping_calls(
    groups: GroupTable, ops: dict[int, RankOps], opened: dict[int, list[Operation]]
) -> set[Call]:
    """Calls that were overtaken on any rank."""
    found: set[Call] = set()
    for rank, waiting in opened.items():
        if not waiting or not ops[rank].runs_ahead:
            continue
        records = ops[rank].operations
        if ops[rank].only_active:
            found.update(call_of(groups, op) for op in _passed_by_place(ops[rank]))
            continue
        tail = len(waiting)
        if records[-tail] is waiting[0]:  # nothing after the first incomplete one has completed
            continue
        for i, op in enumerate(records):
            if op.state != "done" and any(
                o.state == "done" and o.group != op.group for o in records[i + 1 :]
            ):
                found.add(call_of(groups, op))
    return found


def _passed_by_place(ops: RankOps) -> list[Operation]:
    """Pending operations after which others have completed: places between them are missing."""
    places = [place for place, _ in ops.places]
    if len(places) != len(ops.operations):
        return []
    last = max(places, default=0)
    following = set(places)
    return [
        op
        for op, place in zip(ops.operations, places, strict=True)
        if op.op not in P2P_NAMES and place < last and place + 1 not in following
    ]
