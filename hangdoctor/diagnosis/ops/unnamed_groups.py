"""Operations of groups that nothing names: never matched with another rank's, and no rank is
accused for them.

A record may outlive the name of its group: thousands of groups at once, or a box of an earlier
version whose table was full. Who else is in such a group is not known: neither "all have come" nor
"a rank is missing" can be said.
"""

from __future__ import annotations

from msgspec import structs

from ...model.operations import Operation, RankOps, is_unknown
from .evidence import Note, OpsEvidence, Remark


def take_out(evidence: OpsEvidence) -> tuple[OpsEvidence, dict[int, Operation]]:
    """The evidence without these operations, and of each rank the one that it is in."""
    groups = [group for ops in evidence.ops.values() for group in ops.groups]
    listed = {group.uid for group in groups if group.ranks or group.name}
    rest: dict[int, RankOps] = {}
    waits: dict[int, Operation] = {}
    for rank, ops in evidence.ops.items():
        hidden = _unnamed(ops) - listed
        if not hidden:
            continue
        rest[rank] = _without(ops, hidden)
        waited = _waits_in([op for op in ops.operations if op.group in hidden])
        if waited is not None:
            waits[rank] = waited
    if not rest:
        return evidence, {}
    return structs.replace(evidence, ops=evidence.ops | rest), waits


def _without(ops: RankOps, hidden: set[str]) -> RankOps:
    return structs.replace(
        ops,
        operations=[op for op in ops.operations if op.group not in hidden],
        groups=[group for group in ops.groups if group.uid not in hidden],
    )


def _waits_in(operations: list[Operation]) -> Operation | None:
    """The first of them that the rank waits in."""
    for op in operations:
        runs_beside = op.asynchronous and not op.waited
        if op.state != "done" and not runs_beside:
            return op
    return None


def _unnamed(ops: RankOps) -> set[str]:
    """Groups without a name and without members.

    Other recorders' groups are completed from what all ranks know.
    """
    if ops.source != "blackbox":
        return set()
    bare = {group.uid for group in ops.groups if not group.ranks and not group.name}
    return bare | {uid for uid in ops.groups_in_use() if is_unknown(uid)}


def note_of(waits: dict[int, Operation]) -> list[Note]:
    """What is not known, for the report."""
    if not waits:
        return []
    op = waits[min(waits)]
    return [Note(Remark.UNNAMED_GROUPS, tuple(sorted(waits)), op.seq, op=op.op)]
