"""Puts the operations that ranks recorded on their captures: black boxes first, else the recorder of a living rank."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psutil

from ..errors import BadInput, HangdoctorError
from ..model import RankCapture
from ..operations import RankOps
from . import blackbox, flight_recorder, worker_server

KEEP = 2000  # operations of a rank that a capture holds; the ring has more
_KEEP_BEFORE = 16  # of the first sample: only whether it moved is asked
_RECORDER_S = 3.0
_SOCKET = "TORCH_WORKER_SERVER_SOCKET"


def attach(ranks: Sequence[RankCapture], first: bool = False) -> list[str]:
    """Read the operations of `ranks` (dead ones too) into their captures; what could not be read, as notes."""
    environs = {r.pid: _environ(r.pid) for r in ranks if r.pid and not r.gone}
    folders = {Path(e["HANGDOCTOR_DIR"]) for e in environs.values() if e.get("HANGDOCTOR_DIR")}
    found = _boxes(folders, {r.pid for r in ranks})
    notes: list[str] = []
    live: list[tuple[RankCapture, Path]] = []
    for rank in ranks:
        box = _box_of(rank, found)
        if box is not None:
            notes += _put(rank, box, first)
        elif (socket := environs.get(rank.pid, {}).get(_SOCKET)) and not first:
            live.append((rank, Path(socket)))
    return notes + _ask(live)


def _environ(pid: int) -> dict[str, str]:
    try:
        return dict(psutil.Process(pid).environ())
    except psutil.Error:
        return {}


def _boxes(folders: set[Path], pids: set[int]) -> list[blackbox.Box]:
    """All boxes in the job's folders; in the default places those of these processes only."""
    boxes = [b for f in sorted(folders) if f.is_dir() for b in blackbox.find_boxes(f)]
    return boxes or blackbox.find_boxes(pids=pids)


def _box_of(rank: RankCapture, boxes: Sequence[blackbox.Box]) -> blackbox.Box | None:
    """The rank's own box by process; of a dead rank whose process is unknown, the newest of that rank on this host."""
    own = [b for b in boxes if b.pid == rank.pid and b.status != "stale" and rank.pid]
    if not own and rank.gone:
        host = os.uname().nodename
        own = [b for b in boxes if b.rank == rank.rank and b.status == "dead" and b.host in (host, rank.node)]
    return max(own, key=lambda b: b.created_s, default=None)


def _put(rank: RankCapture, box: blackbox.Box, first: bool) -> list[str]:
    try:
        ops = blackbox.read_box(box.path, last=_KEEP_BEFORE if first else KEEP).ops
    except BadInput as error:
        return [f"rank {rank.rank}: {error}"]
    if first:
        rank.ops_before = ops
    else:
        rank.ops = ops
    rank.pid = rank.pid or box.pid
    if box.state == "switched_off":
        return [f"rank {rank.rank}: its probe switched itself off: {box.note}"]
    return []


def trim(ops: RankOps, keep: int) -> RankOps:
    """The newest `keep` operations, and every older one that has not ended."""
    if len(ops.operations) <= keep:
        return ops
    old = [o for o in ops.operations[:-keep] if o.state != "done"]
    return msgspec.structs.replace(ops, operations=old + ops.operations[-keep:], overwritten=True)


def _ask(live: list[tuple[RankCapture, Path]]) -> list[str]:
    """The recorders of ranks that carry no black box but serve torch's worker socket."""
    dumps, notes = {}, []
    for rank, socket in live:
        try:
            answer = worker_server.read_rank(socket, _RECORDER_S)
        except HangdoctorError as error:
            notes.append(f"rank {rank.rank}: {error}")
            continue
        if answer.dump is not None:
            dumps[rank.rank] = answer.dump
        notes += [f"rank {rank.rank}: {e}" for e in answer.errors]
    if dumps:
        world = max(r.world_size for r, _ in live)
        result = flight_recorder.convert(dumps, world_size=world)
        for rank, _ in live:
            if rank.rank in result.ops:
                rank.ops = trim(result.ops[rank.rank], KEEP)
    return notes
