"""Numbers of sends and receives that torch's recorders of several nodes give them, made to agree.

A recorder counts the transfers of a process together. Each node numbers those of its own ranks by
pair and direction; where the two sides are on two nodes, neither saw the other. A send and its
receive complete together, so that the last completed one of each side is the same one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from msgspec import structs

from ..model.operations import P2P, Operation, RankOps

Lane = tuple[str, int, int]  # group, from, to
Side = tuple[int, Lane]  # a rank's part of it


def agree(
    now: dict[int, RankOps], before: dict[int, RankOps]
) -> tuple[dict[int, RankOps], dict[int, RankOps]]:
    """The records of both samples, by rank; those of the first are shifted as those of the last."""
    shifts = _shifts(now)
    if not shifts:
        return now, before
    return _shifted(now, shifts), _shifted(before, shifts)


def _shifts(records: dict[int, RankOps]) -> dict[Side, int]:
    sides: dict[Lane, dict[int, list[Operation]]] = defaultdict(dict)
    for rank, ops in records.items():
        if ops.source == "flight_recorder":
            for op in ops.operations:
                if op.op in P2P and op.peer >= 0:
                    sides[_lane(op, rank)].setdefault(rank, []).append(op)
    found: dict[Side, int] = {}
    for lane, by_rank in sides.items():
        ends = {rank: _last_done(some) for rank, some in by_rank.items()}
        most = max(ends.values())
        found |= {(rank, lane): most - end for rank, end in ends.items() if end < most}
    return found


def _lane(op: Operation, rank: int) -> Lane:
    ends = (rank, op.peer) if op.op in ("send", "isend") else (op.peer, rank)
    return op.group, *ends


def _last_done(transfers: Iterable[Operation]) -> int:
    """The number of the last that has completed; before the first, where none has."""
    some = list(transfers)
    return max((op.seq for op in some if op.state == "done"), default=some[0].seq - 1)


def _shifted(records: dict[int, RankOps], shifts: dict[Side, int]) -> dict[int, RankOps]:
    ranks = {rank for rank, _ in shifts}
    return {
        rank: _of_rank(rank, ops, shifts) if rank in ranks else ops for rank, ops in records.items()
    }


def _of_rank(rank: int, ops: RankOps, shifts: dict[Side, int]) -> RankOps:
    operations: list[Operation] = []
    for op in ops.operations:
        shift = shifts.get((rank, _lane(op, rank)), 0) if op.op in P2P else 0
        operations.append(structs.replace(op, seq=op.seq + shift) if shift else op)
    return structs.replace(ops, operations=operations)
