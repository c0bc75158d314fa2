"""Which operations of torch's recorder the device has started, by NCCL's own events of the same rank.

torch's recorder counts what C++ issues too, and does not see a kernel begin unless timing is on. NCCL sees
that, and counts otherwise: the two are matched by when the host enqueued what has not completed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from ..model.operations import Operation, RankOps
from ..probe.nccl import format as fmt
from .nccl_launches import Launches, Seen
from .nccl_profiler import NcclEvents, Record

_BEFORE_S, _AFTER_S = 0.001, 1.0  # of torch's record: NCCL's follows it, behind a group of calls
# How torch's names begin; what it makes of several transfers, or of other calls, is not matched.
_NAMES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "send", "recv")
_ALSO = {"barrier": "all_reduce", "isend": "send", "irecv": "recv"}


def told(recorded: Mapping[int, RankOps], events: Mapping[int, NcclEvents]) -> dict[int, RankOps]:
    """The records of these ranks of one node, with what has started marked; of none where NCCL may be
    silent about what it would have started.
    """
    launches = {rank: Launches(found) for rank, found in events.items() if rank in recorded}
    launches = {rank: one for rank, one in launches.items() if one.records}
    seen = Seen(launches.values())
    if any(not seen.explains(p) for one in launches.values() for p in one.pending()):
        return {}
    found = {rank: _marked(recorded[rank], one) for rank, one in launches.items()}
    return {rank: ops for rank, ops in found.items() if ops is not None}


def _marked(ops: RankOps, launches: Launches) -> RankOps | None:
    """None where an operation that has not completed has no event, or nothing has begun."""
    records = sorted(launches.records, key=lambda record: record.begun_ns)
    started: set[int] = set()
    for operation in ops.unfinished():
        place = _match(operation, records)
        if place is None:
            return None
        record = records.pop(place)
        if launches.state(record) != "entered":
            started.add(id(operation))
    operations = [
        structs.replace(op, state="started") if id(op) in started else op for op in ops.operations
    ]
    return structs.replace(ops, operations=operations, sees_starts=True)


def _match(operation: Operation, records: Sequence[Record]) -> int | None:
    """The place of the first event that can be of an operation."""
    name = _plain(operation.op)
    for place, record in enumerate(records):
        after = record.begun_ns / 1e9 - operation.entered_s
        if after > _AFTER_S:
            return None
        if after >= -_BEFORE_S and record.op < len(fmt.OPS) and _plain(fmt.OPS[record.op]) == name:
            return place
    return None


def _plain(name: str) -> str:
    name = _ALSO.get(name, name)
    return next((plain for plain in _NAMES if name.startswith(plain)), name)
