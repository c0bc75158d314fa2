"""NCCL's events of living and dead ranks, put where torch's own recorder would be: beside their black
boxes, or in place of one where no rank has any.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from msgspec import structs

from ..errors import BadInput
from ..model.capture import RankCapture
from ..model.operations import RankOps
from ..probe.identity import host, process_name
from ..probe.nccl.format import SUFFIX
from . import box_folders, nccl_operations, nccl_profiler, nccl_starts
from .box_header import BlackBox

KEEP = 256  # operations of a rank that a capture holds
_KEEP_BEFORE = 16
_Asked = tuple[RankCapture, Path, set[int]]  # a rank, its file, and who may have written that
_LAST = 2048  # records that show which kinds of operations NCCL reports


def attach(
    ranks: Sequence[RankCapture],
    boxes: Sequence[tuple[RankCapture, BlackBox]],
    named: Mapping[int, str],
    users: Mapping[int, Collection[int]],
    first: bool,
) -> list[str]:
    """Read the events of these ranks of one node into their captures; what could not be read, as notes.

    Args:
        boxes: the ranks that have a black box, and which; only its owner's file is believed beside it.
        named: HANGDOCTOR_DIR of processes that have one, by pid.
        users: whose processes they are, by pid.
        first: it is the first of two samples.
    """
    recorded = [r for r in ranks if (r.recorded_before if first else r.recorded) is not None]
    notes: list[str] = []
    asked: list[_Asked] = [
        (r, nccl_profiler.events_path(box.path), {box.owner}) for r, box in boxes
    ]
    if not boxes:
        asked = _alone(
            [r for r in ranks if (r.ops_before if first else r.ops) is None], named, users
        )
    events: dict[int, nccl_profiler.NcclEvents] = {}
    for rank, path, owners in asked:
        try:
            found = nccl_profiler.read_events(path, owners, _LAST)
        except BadInput as error:
            if not first:
                notes.append(f"rank {rank.rank}: NCCL's events cannot be read: {error}")
            continue
        if found is not None and _is_of(found, rank):
            events[rank.rank] = found
    if recorded:  # torch's recorder knows more, and the two do not count alike
        _mark_starts(recorded, events, first)
        return notes
    world = max((r.world_size for r in ranks), default=0)
    by_rank = {rank.rank: rank for rank, _, _ in asked}
    for number, ops in nccl_operations.rank_operations(events, world).items():
        _put(by_rank[number], ops, first, beside=bool(boxes))
    return notes


def _mark_starts(
    ranks: Sequence[RankCapture], events: Mapping[int, nccl_profiler.NcclEvents], first: bool
) -> None:
    before = {r.rank: r.recorded_before for r in ranks if r.recorded_before is not None}
    now = {r.rank: r.recorded for r in ranks if r.recorded is not None}
    for number, ops in nccl_starts.told(before if first else now, events).items():
        [rank] = [r for r in ranks if r.rank == number]
        if first:
            rank.recorded_before = ops
        else:
            rank.recorded = ops


def _alone(
    ranks: Sequence[RankCapture], named: Mapping[int, str], users: Mapping[int, Collection[int]]
) -> list[_Asked]:
    """Ranks without a black box that have events in the folder that HANGDOCTOR_DIR names."""
    found: list[_Asked] = []
    for rank in ranks:
        path = _in_folder(rank.pid, named.get(rank.pid, ""))
        if path is not None and users.get(rank.pid):
            found.append((rank, path, set(users[rank.pid])))
    return found


def _in_folder(pid: int, told: str) -> Path | None:
    if not told or not pid:
        return None
    name = f"{host()}-{process_name(pid)}{SUFFIX}"
    folder = box_folders.named_folder(told, pid)
    if not box_folders.is_folder(folder):
        return None
    places = [folder, *folder.glob("hangdoctor-[0-9]*")]
    return next((path for place in places if (path := place / name).exists()), None)


def _is_of(events: nccl_profiler.NcclEvents, rank: RankCapture) -> bool:
    """Whether they are of this very process: a number can be a later one's."""
    return events.pid == rank.pid and (events.alive or rank.gone)


def _put(rank: RankCapture, ops: RankOps, first: bool, beside: bool) -> None:
    kept = _trimmed(ops, _KEEP_BEFORE if first else KEEP)
    if beside and first:
        rank.recorded_before = kept
    elif beside:
        rank.recorded = kept
    elif first:
        rank.ops_before = kept
    else:
        rank.ops = kept


def _trimmed(ops: RankOps, keep: int) -> RankOps:
    if len(ops.operations) <= keep:
        return ops
    return structs.replace(ops, operations=ops.newest(keep), overwritten=True)
