"""The records of a recorder in memory, in the form of its own JSON dump."""

from __future__ import annotations

import struct
from typing import Any

from msgspec import to_builtins

from ...text.late import late
from ..flight_recorder_format import Dump, of_plain
from . import cxx_values as cxx
from .process_memory import ProcessMemory, Unreadable
from .python_code import CodeReader
from .search import Found, again

_VERSION = "2.10"  # of dumps, whose names of fields are used here
_LINE = late(r"^\w+:[\w .<>-]+$")
# c10::ScalarType, in its order (c10/core/ScalarType.h).
_DTYPES = (
    "Byte Char Short Int Long Half Float Double ComplexHalf ComplexFloat ComplexDouble Bool QInt8 QUInt8 "
    "QInt32 BFloat16 QUInt4x2 QUInt2x4 Bits1x8 Bits2x4 Bits4x2 Bits8 Bits16 Float8_e5m2 Float8_e4m3fn"
).split()
# torch::CapturedTraceback: behind the pointer to its virtual functions, (code object, last instruction)
# of each Python frame, the innermost first.
_FRAMES_AT = 8
_FRAME = struct.Struct("<Qi4x")
_MOST_FRAMES = 64
_STATUS = {
    "last_enqueued_collective": "lastEnqueuedSeq",
    "last_started_collective": "lastStartedSeq",
    "last_completed_collective": "lastCompletedSeq",
}


# Its recorder has no sends and receives. Those of others are numbered from the first record on, which
# must then be the same one in both samples.
_GLOO = "libtorch_cpu.so"


class Torn(Exception):
    """It was written while it was read."""


def records(memory: ProcessMemory, recorder: Found, newest: int) -> Dump:
    """The newest records.

    Raises:
        Torn: the recorder went on meanwhile, and a record is half of another.
        Unreadable: a part of it is not there.
    """
    if not recorder.library.endswith(_GLOO):
        newest = recorder.most
    codes = CodeReader(memory)
    read = (_row(memory, recorder, place, codes) for place in _places(recorder, newest))
    rows = [row for row in read if row is not None]
    raw = {
        "version": _VERSION,
        "entries": rows,
        "pg_config": _groups(memory, recorder),
        "pg_status": _status(memory, recorder),
    }
    after = again(memory, recorder)
    if (
        after is None
        or after.begin != recorder.begin
        or after.id - recorder.id > recorder.most // 2
    ):
        raise Torn
    numbers = [row["record_id"] for row in rows]
    if numbers and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise Torn
    return of_plain(raw)


def _places(recorder: Found, newest: int) -> list[int]:
    """Places of the newest records, oldest first."""
    first = recorder.next if recorder.count == recorder.most else 0
    places = [(first + n) % recorder.count for n in range(recorder.count)]
    return places[-newest:]


def _row(
    memory: ProcessMemory, recorder: Found, place: int, codes: CodeReader
) -> dict[str, Any] | None:
    """One record; None where it is of a time before the recorder was reset."""
    entry = recorder.layouts.entry
    address = recorder.begin + place * entry.size
    data = memory.read(address, entry.size)
    reader = _Reader(memory, recorder, data, address)
    if reader.whole("reset_epoch_") != recorder.whole("reset_epoch_"):
        return None
    name = reader.text("profiling_name_")
    if not _LINE.match(name):
        raise Torn
    inputs, outputs = reader.shapes()
    # A tuple's elements lie in reverse order.
    group, description = reader.text("pg_name_", 32), reader.text("pg_name_", 0)
    completed = reader.moment("time_discovered_completed_")
    started = reader.moment("time_discovered_started_")
    state = "started" if started else "scheduled"
    return {
        "record_id": reader.whole("id_"),
        "pg_id": reader.whole("pg_id_"),
        "process_group": [group, description],
        "collective_seq_id": reader.whole("collective_seq_id_"),
        "p2p_seq_id": reader.whole("p2p_seq_id_"),
        "op_id": reader.whole("op_id_"),
        "profiling_name": name,
        "time_created_ns": reader.whole("time_created_"),
        "time_discovered_completed_ns": completed or 0,
        "input_sizes": inputs,
        "output_sizes": outputs,
        "input_dtypes": reader.dtypes("input_dtypes_"),
        "output_dtypes": reader.dtypes("output_dtypes_"),
        "state": "completed" if completed else state,
        "is_p2p": reader.flag("isP2P_"),
        "retired": reader.flag("retired_"),
        "thread_id": reader.whole("thread_id_"),
        "frames": reader.frames(codes),
    }


class _Reader:
    """The fields of one record."""

    def __init__(self, memory: ProcessMemory, recorder: Found, data: bytes, address: int) -> None:
        self.memory = memory
        self.fields = recorder.layouts.entry.fields
        self.data = data
        self.address = address

    def _at(self, name: str) -> int:
        field = self.fields.get(name)
        if field is None:
            raise Unreadable(f"a record has no {name}")
        return field.offset

    def whole(self, name: str) -> int:
        """0 where this version has none of this name."""
        if name not in self.fields:
            return 0
        return int(struct.unpack_from("<Q", self.data, self._at(name))[0])

    def flag(self, name: str) -> bool:
        return bool(self.data[self._at(name)])

    def moment(self, name: str) -> int | None:
        return cxx.optional_whole(self.data, self._at(name))

    def text(self, name: str, inside: int = 0) -> str:
        return cxx.text(self.memory, self.data, self._at(name) + inside, self.address)

    def dtypes(self, name: str) -> list[str]:
        raw = cxx.vector_bytes(self.memory, self.data, self._at(name))
        return [_DTYPES[n] if n < len(_DTYPES) else f"dtype {n}" for n in raw]

    def shapes(self) -> tuple[list[list[int]], list[list[int]]]:
        """Of inputs and of outputs: how many dimensions each has, and all sizes in one row."""
        inputs, outputs = self._numbers("input_dims_"), self._numbers("output_dims_")
        sizes = self._numbers("sizes_")
        if sum(inputs) + sum(outputs) != len(sizes) or min([*inputs, *outputs, 0]) < 0:
            raise Torn
        found: list[list[int]] = []
        for dimensions in (*inputs, *outputs):
            found.append(sizes[:dimensions])
            sizes = sizes[dimensions:]
        return found[: len(inputs)], found[len(inputs) :]

    def frames(self, codes: CodeReader) -> list[dict[str, Any]]:
        """The Python frames that made the call; none where they cannot be read."""
        context = self.whole("traceback_")
        if not context or not codes.minor:
            return []
        try:
            begin, end = self.memory.words(context + _FRAMES_AT, 2)
            size = min(end - begin, _FRAME.size * _MOST_FRAMES)
            rows = self.memory.read(begin, size // _FRAME.size * _FRAME.size)
        except Unreadable:
            return []
        places = (codes.place(*row) for row in _FRAME.iter_unpack(rows))
        return [to_builtins(place) for place in places if place is not None]

    def _numbers(self, name: str) -> list[int]:
        return cxx.small_vector(self.memory, self.data, self._at(name), self.address)


def _groups(memory: ProcessMemory, recorder: Found) -> dict[str, dict[str, Any]]:
    """Members by the group's name; gloo's recorder has them of one group, without its name."""
    field = recorder.layouts.recorder.fields.get("pg_name_to_ranks_")
    if field is None:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for address, pair in cxx.map_values(memory, recorder.data, field.offset, 64 + 24):
        description = cxx.text(memory, pair, 0, address)
        name = cxx.text(memory, pair, 32, address)
        ranks = cxx.vector_bytes(memory, pair, 64)
        members = list(struct.unpack(f"<{len(ranks) // 8}Q", ranks))
        found[name] = {"name": name, "desc": description, "ranks": str(members)}
    return found


def _status(memory: ProcessMemory, recorder: Found) -> dict[str, dict[str, str]]:
    """How far each group has come, by the process's own number of it."""
    field = recorder.layouts.recorder.fields.get("all_pg_status_")
    layout = recorder.layouts.status
    if field is None or layout is None:
        return {}
    found: dict[str, dict[str, str]] = {}
    for _, pair in cxx.map_values(memory, recorder.data, field.offset, 24):
        number, pointer = struct.unpack_from("<2Q", pair)
        data = memory.read(pointer, layout.size)
        found[str(number)] = {
            key: str(struct.unpack_from("<q", data, layout.fields[name].offset)[0])
            for key, name in _STATUS.items()
            if name in layout.fields
        }
    return found
