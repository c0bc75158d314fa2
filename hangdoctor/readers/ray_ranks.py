"""Ranks of Ray Train's workers: they are variables of the workers alone, which only the actor that
directs them shows, in its log; or whoever read that log and started this agent.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psutil
from msgspec import Struct

from ..errors import BadInput
from ..files import open_regular, users_of
from ..text.late import late
from ..text.ranges import MAX_RANKS
from . import proc

_NODE = "raylet"  # the process of each node, above its actors
_DIRECTOR = "ray::TrainController"
_STARTED = late(rb"Started training worker group of size (\d{1,9})")
_WORKER = late(rb"pid=(\d{1,9})\) world_rank=(\d{1,9})\b")
_LISTED = late(r"\(ip=([^\s,)]{1,64}), pid=(\d{1,9})\) world_rank=(\d{1,9})\b")
_MOST = 4 << 20  # bytes of a log, its last ones
GIVEN = "HANGDOCTOR_RAY_RANKS"  # of this agent, "WORLD:PID=RANK,...": who started it knows them
_GIVEN = late(r"(\d{1,9}):((?:\d{1,9}=\d{1,9},?)+)")


class Listed(Struct, frozen=True):
    """One worker in the log of its director: `pid` is the number that it has for itself."""

    address: str
    pid: int
    rank: int


def has_node() -> bool:
    """Whether a node of Ray runs on this host, and this agent was not started by asking Ray."""
    names = (process.info["name"] for process in psutil.process_iter(["name"]))
    return GIVEN not in os.environ and _NODE in names


def workers(log: str) -> tuple[list[Listed], int]:
    """(the last list of workers in a log, the size of the world); ([], 0) where there is none."""
    begun = list(_STARTED.finditer(log.encode()))
    if not begun:
        return [], 0
    behind = log.encode()[begun[-1].end() :].decode(errors="replace")
    found = [Listed(ip, int(pid), int(rank)) for ip, pid, rank in _LISTED.findall(behind)]
    world = int(begun[-1][1])
    return [one for one in found if one.rank < world], world


def given(pids: Sequence[int]) -> tuple[dict[int, int], int]:
    """({process id: rank} of those that this agent was told of, the size of the world)."""
    told = _GIVEN.fullmatch(os.environ.get(GIVEN, ""))
    if told is None:
        return {}, 0
    pairs = (pair.split("=") for pair in told[2].rstrip(",").split(","))
    ranks = {int(pid): int(rank) for pid, rank in pairs}
    world = int(told[1])
    inside = {pid: _number_inside(pid) for pid in pids}
    found = {pid: ranks[number] for pid, number in inside.items() if number in ranks}
    known = len(set(found.values())) == len(found) and all(r < world for r in found.values())
    return (found, world) if known and world < MAX_RANKS else ({}, 0)


def find(parent: int, workers: Sequence[int]) -> tuple[list[int], int] | None:
    """(the rank of each worker, the size of the world) by the log of the actor that the same parent
    has started; None where none shows all of them.
    """
    try:
        beside = psutil.Process(parent).children()
    except psutil.Error:
        return None
    for process in beside:
        try:
            directs = process.cmdline()[:1] and process.cmdline()[0].startswith(_DIRECTOR)
        except psutil.Error:
            continue
        found = (
            told(_log(process.pid), [_number_inside(pid) for pid in workers]) if directs else None
        )
        if found is not None:
            return found
    return None


def told(log: bytes, pids: Sequence[int]) -> tuple[list[int], int] | None:
    """What the last list of workers in a log says of these processes; None where it lacks one, or
    names a number twice, as of processes on two nodes.
    """
    begun = list(_STARTED.finditer(log))
    if not begun:
        return None
    size = int(begun[-1][1])
    pairs = [(int(pid), int(rank)) for pid, rank in _WORKER.findall(log, begun[-1].end())]
    often = Counter(pid for pid, _ in pairs)
    ranks = [rank for pid in pids for named, rank in pairs if named == pid and often[pid] == 1]
    whole = len(ranks) == len(pids) == len(set(ranks))
    return (ranks, size) if whole and max(ranks) < size < MAX_RANKS else None


def _log(pid: int) -> bytes:
    """The end of what a process writes into its standard error's file; b"" where that is none."""
    try:
        fd = open_regular(Path(f"/proc/{pid}/fd/2"), users_of(pid))
    except (BadInput, OSError):
        return b""
    try:
        return os.pread(fd, _MOST, max(0, os.fstat(fd).st_size - _MOST))
    except OSError:
        return b""
    finally:
        os.close(fd)


def _number_inside(pid: int) -> int:
    """The number that a process has for itself, in the innermost namespace."""
    words = proc.status_fields(pid).get("NSpid", "").split()
    return int(words[-1]) if words else pid
