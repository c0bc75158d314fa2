"""Reads what the profiler plugin wrote beside a rank's black box: NCCL's own account of each
collective, send and receive (docs/blackbox.md, "NCCL's own events").

`nccl_operations` turns it into operations that other ranks' can be compared with.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec import Struct

from ..errors import BadInput
from ..files import read_regular
from ..probe.identity import boot_id, start_ticks
from ..probe.nccl import format as fmt
from ..text.plain import visible
from ..text.ranges import MAX_RANKS

_MAX_BYTES = 64 << 20
_MAX_COMMS = 1 << 16
_STARTED, _ENDED = 18, 19  # fields of a record: kernel channels


class Communicator(Struct):
    """One communicator of a process; `ranks` is 0 and `rank` -1 where NCCL did not say."""

    hash: str
    ranks: int
    rank: int
    live: bool
    name: str = ""


class Record(Struct, gc=False):
    """One operation as NCCL reported it; times in nanoseconds of the wall clock, 0 where it has not
    come to that.
    """

    serial: int
    number: int
    nccl_number: int
    begun_ns: int
    launched_ns: int
    started_ns: int
    ended_ns: int
    moved_ns: int
    elements: int
    bytes: int
    comm: int
    generation: int
    peer: int
    kind: int
    op: int
    datatype: int
    channels: int
    flags: int
    kernels_started: int
    kernels_ended: int
    transfers_started: int
    transfers_ended: int
    steps_wanted: int
    steps_started: int
    steps_ended: int
    check: int

    @property
    def directed(self) -> bool:
        """Whether it is a send or a receive."""
        return self.kind in (fmt.SEND, fmt.RECEIVE)

    @property
    def sees_device(self) -> bool:
        """Whether NCCL was asked to say when its kernel starts and ends."""
        return bool(self.flags & fmt.SEES_KERNELS)

    @property
    def ended(self) -> bool:
        """Whether its kernel has ended on all channels that it began on."""
        return 0 < self.kernels_started <= self.kernels_ended


class NcclEvents(Struct):
    """What one file holds."""

    path: str
    pid: int
    interface: int  # version of NCCL's interface
    alive: bool  # its process runs
    communicators: dict[tuple[int, int], Communicator]  # by index and generation
    records: list[Record]  # oldest first
    overwritten: bool = False
    torn: int = 0


def events_path(box: str | Path) -> Path:
    """Where NCCL's events of the rank with this box are."""
    return Path(box).with_suffix(fmt.SUFFIX)


def read_events(
    path: str | Path, owners: Collection[int] | None = None, last: int | None = None
) -> NcclEvents | None:
    """The events of one process; None where there are none. With `owners`, only a file of these
    users or root; with `last`, its newest records and all whose kernels have not ended.

    Raises:
        BadInput: no such file, one of another version, or one cut short.
    """
    try:
        first = _snapshot(Path(path), owners)
        second = _snapshot(Path(path), owners)
    except FileNotFoundError:
        return None
    _check(path, first)
    _check(path, second)
    if first[:64] != second[:64]:
        raise BadInput(f"{path} has become another process's")
    found, torn = _records(path, first, second, last)
    slots = _pair(second, fmt.H_RING)[1]
    return NcclEvents(
        path=str(path),
        pid=_number(second, fmt.H_PID),
        interface=_number(second, fmt.H_INTERFACE),
        alive=_is_alive(second),
        communicators=_communicators(path, second),
        records=sorted(found, key=lambda record: record.serial),
        overwritten=_number(second, fmt.H_NEXT) > slots,
        torn=torn,
    )


def _snapshot(path: Path, owners: Collection[int] | None) -> bytes:
    try:
        return read_regular(path, _MAX_BYTES, owners, links=owners is None)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error


def _check(path: str | Path, data: bytes) -> None:
    if len(data) < fmt.HEADER_BYTES or not data.startswith(fmt.MAGIC):
        raise BadInput(f"{path} is not a file of NCCL's events")
    version = _number(data, fmt.H_VERSION)
    if version != fmt.VERSION:
        raise BadInput(f"{path} was written by another version of hangdoctor (format {version})")


def _number(data: bytes, place: tuple[int, str]) -> int:
    number: int = struct.unpack_from(place[1], data, place[0])[0]
    return number


def _pair(data: bytes, place: tuple[int, str]) -> tuple[int, int]:
    begin, entries = struct.unpack_from(place[1], data, place[0])
    return begin, entries


def _is_alive(data: bytes) -> bool:
    begin = fmt.H_BOOT_ID[0]
    started = _number(data, fmt.H_STARTED_TICKS)
    here = data[begin : begin + 16] == boot_id()
    return here and started != 0 and start_ticks(_number(data, fmt.H_PID)) == started


def _table(path: str | Path, data: bytes, place: tuple[int, str], width: int, most: int) -> bytes:
    """The bytes of a table that the header describes."""
    begin, entries = _pair(data, place)
    end = begin + entries * width
    if not 0 < entries <= most or begin < fmt.HEADER_BYTES or end > len(data):
        raise BadInput(f"{path} is truncated or damaged: its tables reach beyond its end")
    return data[begin:end]


def _communicators(path: str | Path, data: bytes) -> dict[tuple[int, int], Communicator]:
    table = _table(path, data, fmt.H_COMMS, fmt.COMM.size, most=_MAX_COMMS)
    found: dict[tuple[int, int], Communicator] = {}
    for index, row in enumerate(fmt.COMM.iter_unpack(table)):
        hashed, ranks, _, rank, state, generation, _, _, name = row
        if state not in (fmt.LIVE, fmt.ENDED):
            continue
        if ranks > MAX_RANKS or not -1 <= rank < (ranks or MAX_RANKS):
            raise BadInput(f"{path} is damaged: a communicator has rank {rank} of {ranks}")
        text = visible(name.split(b"\0")[0].decode("utf-8", "replace"))
        live = state == fmt.LIVE
        found[index, generation] = Communicator(f"{hashed:016x}", ranks, rank, live, name=text)
    return found


def _records(
    path: str | Path, first: bytes, second: bytes, last: int | None
) -> tuple[list[Record], int]:
    """Records that are the same in both snapshots as far as they do not change; how many are not."""
    most = _MAX_BYTES // fmt.RECORD.size
    before = _table(path, first, fmt.H_RING, fmt.RECORD.size, most=most)
    now = _table(path, second, fmt.H_RING, fmt.RECORD.size, most=most)
    slots = len(now) // fmt.RECORD.size
    newest = _number(second, fmt.H_NEXT)
    since = 0 if last is None else newest - last
    found: list[Record] = []
    torn = 0
    for slot, (begin, row) in enumerate(_rows(now)):
        serial = row[0]
        if not serial and not row[-1]:
            continue
        if serial <= since and 0 < row[_STARTED] <= row[_ENDED]:
            continue
        record = Record(*row)
        whole = serial % slots == slot and serial <= newest and record.check == serial & 0xFFFFFFFF
        if whole and _same(before, now, begin) and _is_possible(record):
            found.append(record)
        else:
            torn += 1
    return found, torn


def _rows(table: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    for place, row in enumerate(fmt.RECORD.iter_unpack(table)):
        yield place * fmt.RECORD.size, row


def _same(before: bytes, now: bytes, begin: int) -> bool:
    parts = ((begin, begin + fmt.FIXED_BYTES), (begin + fmt.FIXED_FROM, begin + fmt.FIXED_TO))
    return all(before[start:end] == now[start:end] for start, end in parts)


def _is_possible(record: Record) -> bool:
    known = fmt.COLLECTIVE <= record.kind <= fmt.COPY_ENGINE
    return known and -1 <= record.peer < MAX_RANKS
