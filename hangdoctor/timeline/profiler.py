"""Traces of torch.profiler as further tracks: kernels and copies by GPU and stream, CPU operators
by thread.

Format: Chrome trace JSON as Kineto writes it; an event's time is ``baseTimeNanoseconds`` + ``ts``
microseconds of the rank's wall clock (older ones have no base: then ``ts`` counts from the epoch),
``distributedInfo.rank`` is the rank.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from ..errors import BadInput
from ..files import read_regular
from ..text.ranges import number_in
from .model import RankTrace, Timeline
from .tracks import Slice, Track

_GPU = {
    "kernel": "gpu",
    "gpu_memcpy": "gpu copy",
    "gpu_memset": "gpu copy",
    "gpu_user_annotation": "gpu annotation",
}
_CPU = {"cpu_op": "torch", "user_annotation": "torch annotation"}
_FACTS = (
    "stream",
    "device",
    "bytes",
    "grid",
    "block",
    "correlation",
    "Collective name",
    "Group size",
    "Process Group Name",
)
_MAX_BYTES = 512 << 20  # of one trace, inflated
_NEAR_NS = 3600 * 10**9  # a trace that lies further off than this is of another run


class _Event(Struct):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Any = 0
    tid: Any = 0
    ts: float = 0.0
    dur: float = 0.0
    args: dict[str, Any] = {}


class _Info(Struct):
    rank: int = -1


class _File(Struct):
    events: list[_Event] = field(name="traceEvents", default_factory=list)
    base: int = field(name="baseTimeNanoseconds", default=0)
    info: _Info = field(name="distributedInfo", default_factory=_Info)


def _files(folder: Path) -> list[Path]:
    names = [p for p in folder.rglob("*") if p.name.endswith((".json", ".json.gz"))]
    paths = sorted(p for p in names if p.is_file())
    if not paths:
        raise BadInput(
            f"{folder} has no .json or .json.gz files",
            "Pass the folder that tensorboard_trace_handler was given.",
        )
    return paths


def tracks_of_folder(folder: Path, timeline: Timeline) -> tuple[dict[int, list[Track]], list[str]]:
    """(rank -> its further tracks, what was left out and why).

    The timeline's beginning moves back where a trace begins earlier.

    Raises:
        BadInput: no trace there, or one that cannot be read.
    """
    paths = _files(folder)
    by_rank = {lane.trace.rank: lane.trace for lane in timeline.lanes}
    slices: dict[int, dict[str, list[Slice]]] = {}
    notes: list[str] = []
    for path in paths:
        read = _read(path)
        rank = read.info.rank if read.info.rank >= 0 else _rank_in(path.name, len(by_rank))
        trace = by_rank.get(rank)
        if trace is None:
            unknown = "does not say which rank it is from"
            why = unknown if rank < 0 else f"rank {rank} is not in the timeline"
            notes.append(f"{path.name}: {why}")
            continue
        found = _slices(read, timeline, trace)
        away = _away(found, timeline)
        if away:
            notes.append(f"{path.name}: {away}")
            continue
        for name, more in found.items():
            slices.setdefault(rank, {}).setdefault(name, []).extend(more)
    _begin_at(timeline, slices)
    return {rank: _tracks(named) for rank, named in slices.items()}, notes


def _tracks(named: dict[str, list[Slice]]) -> list[Track]:
    return [Track(name, nest(slices)) for name, slices in sorted(named.items(), key=_order)]


def _order(item: tuple[str, object]) -> tuple[bool, list[object]]:
    """GPUs first, then threads, numbers by their size."""
    return not item[0].startswith("GPU"), [
        f"{number_in(p):020d}" if number_in(p) >= 0 else p for p in re.split(r"([0-9]+)", item[0])
    ]


def _read(path: Path) -> _File:
    try:
        data = read_regular(path, _MAX_BYTES)
        if path.suffix == ".gz":
            # As much as a gigabyte of zeros is a megabyte in a file: what is inflated has the same
            # limit.
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
                data = packed.read(_MAX_BYTES + 1)
            if len(data) > _MAX_BYTES:
                raise BadInput(f"{path} is larger than {_MAX_BYTES >> 20} MiB")
        return msgspec.json.decode(data, type=_File)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path}: {error}", "Copy the file again.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(
            f"{path} is not a torch.profiler trace: {error}",
            "Was the rank killed while writing it?",
        ) from error


def _rank_in(name: str, ranks: int) -> int:
    """The rank that a file's name says; 0 where there is only one, else -1."""
    match = re.search(r"rank[-_]?([0-9]{1,9})", name)
    if match is not None:
        return int(match[1])
    return 0 if ranks == 1 else -1


def _slices(read: _File, timeline: Timeline, trace: RankTrace) -> dict[str, list[Slice]]:
    """Track's name -> its slices, in nanoseconds since the timeline's beginning; negative where
    they lie before it.
    """
    correction = timeline.correction(trace)
    found: dict[str, list[Slice]] = {}
    for event in read.events:
        category = _GPU.get(event.cat) or _CPU.get(event.cat)
        if event.ph != "X" or category is None:
            continue
        begin = correction.at(read.base + round(event.ts * 1000)) - timeline.base_ns
        if event.cat in _GPU:
            name = f"GPU {event.args.get('device', event.pid)} stream {event.args.get('stream', event.tid)}"
        else:
            name = f"torch, thread {event.tid}"
        found.setdefault(name, []).append(
            Slice(
                event.name,
                begin,
                begin + max(0, round(event.dur * 1000)),
                category,
                facts=_facts(event.args),
            )
        )
    return found


def _facts(args: dict[str, Any]) -> dict[str, int | str]:
    known = {key: args[key] for key in _FACTS if key in args}
    return {
        k: v
        if isinstance(v, int) and not isinstance(v, bool) and abs(v) < 1 << 62
        else str(v)[:200]
        for k, v in known.items()
    }


def _away(found: dict[str, list[Slice]], timeline: Timeline) -> str:
    begins = [s.begin for slices in found.values() for s in slices]
    if not begins:
        return "it has no kernels and no operators"
    if max(begins) < -_NEAR_NS or min(begins) > timeline.end_ns + _NEAR_NS:
        return "is more than an hour away from the recorded operations: is it from another run?"
    return ""


def _begin_at(timeline: Timeline, slices: dict[int, dict[str, list[Slice]]]) -> None:
    """Let the axis begin with the earliest and end with the latest of everything."""
    every = [s for tracks in slices.values() for some in tracks.values() for s in some]
    shift = -min((s.begin for s in every), default=0)
    timeline.end_ns = max([timeline.end_ns, *(s.end for s in every)])
    if shift <= 0:
        return
    timeline.base_ns -= shift
    timeline.end_ns += shift
    for lane in timeline.lanes:
        lane.begin = [at + shift for at in lane.begin]
        lane.end = [at + shift if at >= 0 else -1 for at in lane.end]
    for slice in every:
        slice.begin += shift
        slice.end += shift


def nest(slices: Iterable[Slice]) -> list[Slice]:
    """Slices of one thread or stream into those that contain them; what overlaps its parent's end
    is cut there.
    """
    outer: list[Slice] = []
    stack: list[Slice] = []
    for slice in sorted(slices, key=lambda s: (s.begin, -s.end)):
        while stack and stack[-1].end <= slice.begin:
            stack.pop()
        if stack:
            slice.end = min(slice.end, stack[-1].end)
            stack[-1].inner.append(slice)
        else:
            outer.append(slice)
        stack.append(slice)
    return outer
