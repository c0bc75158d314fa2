"""Files as NCCL's profiler plugin writes them, made without it."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence

from msgspec import Struct

from hangdoctor.probe.identity import boot_id, start_ticks
from hangdoctor.probe.nccl import format as fmt

_TABLE = fmt.HEADER_BYTES
_RING = _TABLE + 4 * fmt.COMM.size
_STEP_NS = 1_000_000


class Row(Struct):
    """One record; `kernels` are how many channels have started and ended."""

    number: int
    op: int
    kind: int
    kernels: tuple[int, int]
    flags: int
    elements: int = 1000
    peer: int = 0
    datatype: int = 7
    begun: int = 0  # 0: a time of its own
    launched: int = 0


def nccl_file(
    rows: Sequence[Row],
    rank: int = 0,
    ranks: int = 1,
    state: int = fmt.LIVE,
    name: bytes = b"world",
) -> bytes:
    """A file of this process with one communicator."""
    slots = 8
    while slots <= len(rows):
        slots *= 2
    data = bytearray(_RING + slots * fmt.RECORD.size)
    data[:8] = fmt.MAGIC
    for (at, how), values in (
        (fmt.H_VERSION, (fmt.VERSION,)),
        (fmt.H_FILE_BYTES, (len(data),)),
        (fmt.H_PID, (os.getpid(),)),
        (fmt.H_INTERFACE, (5,)),
        (fmt.H_STARTED_TICKS, (start_ticks(),)),
        (fmt.H_BOOT_ID, (boot_id(),)),
        (fmt.H_COMMS, (_TABLE, 4)),
        (fmt.H_RING, (_RING, slots)),
        (fmt.H_NEXT, (len(rows),)),
    ):
        struct.pack_into(how, data, at, *values)
    fmt.COMM.pack_into(data, _TABLE, 0xAB, ranks, 1, rank, state, 1, len(rows), 1, name)
    for serial, row in enumerate(rows, start=1):
        place = _RING + serial % slots * fmt.RECORD.size
        fmt.RECORD.pack_into(data, place, *_record(serial, row))
    return bytes(data)


def _record(serial: int, row: Row) -> tuple[int, ...]:
    begun = row.begun or serial * 10 * _STEP_NS
    launched = row.launched or begun + _STEP_NS
    started, ended = row.kernels
    times = (begun, launched, launched * bool(started), (launched + 1) * bool(ended), 0)
    size = (row.elements, row.elements * 4)
    kind = (row.kind, row.op, row.datatype, 2)
    return (
        serial,
        row.number,
        row.number - 1,
        *times,
        *size,
        0,
        1,
        row.peer,
        *kind,
        row.flags,
        started,
        ended,
        0,
        0,
        0,
        0,
        0,
        serial,
    )
