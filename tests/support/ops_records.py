"""Records written down by hand, where the simulator of `ops_programs` runs no such job."""

from __future__ import annotations

from collections.abc import Iterable

from hangdoctor.diagnosis.ops import OpsEvidence
from hangdoctor.model.operations import Group, Operation, RankOps, group_uid


def entered(
    members: Iterable[int], seq: int, op: str = "all_reduce", **fields: object
) -> Operation:
    """An operation that the rank is in, on the group with these members."""
    return Operation(group_uid(members), seq, op, **{"state": "entered", **fields})  # type: ignore[arg-type]


def done(members: Iterable[int], seq: int, op: str = "all_reduce", **fields: object) -> Operation:
    """An operation that the rank has completed."""
    return entered(members, seq, op, **{"state": "done", **fields})


def rank_ops(
    rank: int, world: int, operations: list[Operation], *groups: Iterable[int], **fields: object
) -> RankOps:
    """The records of a rank, which is in the whole job's group and in these."""
    members = [list(range(world)), *map(list, groups)]
    named = [Group(group_uid(ranks), ranks) for ranks in members]
    return RankOps(
        rank, world, groups=named, operations=operations, **{"source": "simulated", **fields}
    )  # type: ignore[arg-type]


def evidence(
    ops: Iterable[RankOps], earlier: Iterable[RankOps] = (), **fields: object
) -> OpsEvidence:
    """The evidence of these ranks."""
    return OpsEvidence(
        {o.rank: o for o in ops},
        {o.rank: o for o in earlier},
        **fields,  # type: ignore[arg-type]
    )
