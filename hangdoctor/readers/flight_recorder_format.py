"""One Flight Recorder dump, pickle or JSON, as plain checked data.

Field names and their meaning: torch/csrc/distributed/c10d/FlightRecorder.hpp and
FlightRecorderDetail.hpp of torch 2.13 (dump version 2.10). Versions from 2.0 on differ by added
fields; what a version lacks is left empty here. The JSON form has no stacks, 0 where the pickle
has None, numbers of `pg_status` as text, and no `entries` when there are none.
"""

from __future__ import annotations

import gc
import re
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from hangdoctor.errors import BadInput
from hangdoctor.model.operations import OpState

from ..text.ranges import MAX_RANKS, number_in
from . import safe_pickle

MAX_ENTRIES = 1_000_000
_ENTRY_BYTES = 32  # of a file, that an entry takes at the least
_MAX_SHAPES, _MAX_DIMENSIONS, _MAX_FRAMES = 2048, 64, 256  # of one entry that are read

# The recorder's names -> torch.distributed's public ones, so that a dump and a black box agree.
_PUBLIC = {
    "_all_gather_base": "all_gather_into_tensor",
    "all_gather_single": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "all_to_all_v_single": "all_to_all_single",
    "all_reduce_barrier": "barrier",
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
    "allreduce_coalesced": "all_reduce",
    "ALLGATHER_coalesced": "all_gather_into_tensor",
    "all_gather_into_tensor_coalesced": "all_gather_into_tensor",
    "REDUCE_SCATTER_coalesced": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor",
}
_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
}
_P2P = re.compile(r"^(send|recv) ([0-9]{1,9})(?:->|<-)([0-9]{1,9})$")
# Frames of torch itself say nothing about where the job called it.
_TORCH = re.compile(
    r"[/\\]torch[/\\](distributed|utils|autograd|nn|_ops|_compile|_dynamo)|[/\\]torch[/\\]_\w+\.py"
)


class Entry(Struct, gc=False):
    """One record. `peer` is a rank within the group, -1 for a collective."""

    group: str
    seq: int
    op: str
    state: OpState
    p2p: bool = False
    p2p_seq: int = 0
    peer: int = -1
    shapes: str = ""
    dtype: str = ""
    site: str = ""
    thread: int = 0
    entered_ns: int = 0
    left_ns: int = 0
    # members of the group as the shape of an all_gather's output shows it, 0 where it does not
    size: int = 0
    coalesced: bool = False  # the end mark of a batch, which alone has the batch's state
    record: int = 0  # place among all that the process has recorded


class Dump(Struct):
    """What one rank's recorder held, oldest first."""

    version: str
    entries: list[Entry]
    members: dict[str, list[int]]  # of the groups whose member set the dump shows
    names: dict[str, str]  # group -> description
    backend: str = ""
    overwritten: bool = False
    unnamed: list[int] = []  # members of a group that the dump does not name (gloo)
    groups_seen: int = 0
    # Group -> sends and recvs after its last record (gloo counts but omits them).
    hidden_p2p: dict[str, int] = {}
    # Without what has completed (torch's `include_only_active`).
    only_active: bool = False
    # Group -> its last completed collective by `pg_status`, 0 before the first.
    completed: dict[str, int] = {}
    # The oldest pending operation of every group is among the entries, as `pg_status` shows.
    pending_whole: bool = False

    @property
    def newest_ns(self) -> int:
        """When the last thing happened that it recorded, by its own wall clock; 0 without any."""
        return max((max(e.entered_ns, e.left_ns) for e in self.entries), default=0)


def parse(data: bytes) -> Dump:
    """Read one dump, pickle or JSON by its first byte.

    Raises:
        BadInput: empty, truncated, damaged, not a dump, of another major version, or not plain
            data.
    """
    # Ten thousands of containers at once make the collector look at all of them again and again,
    # for nothing.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _dump(_load(data), len(data))
    finally:
        if collecting:
            gc.enable()


def _load(data: bytes) -> dict[Any, Any]:
    if not data.strip(b"\0 \n"):
        raise BadInput("the file is empty")
    if data[:1] == b"{":
        try:
            raw: object = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            raise BadInput(f"damaged or truncated JSON: {e}") from e
    elif data[:1] == b"\x80":
        raw = safe_pickle.loads(data)
    else:
        raise BadInput("neither a pickle nor JSON")
    if (
        not isinstance(raw, dict)
        or "version" not in raw
        or not ({"entries", "pg_config", "pg_status"} & raw.keys())
    ):
        raise BadInput("not a Flight Recorder dump: it has no version or no entries")
    return raw


def _dump(raw: dict[Any, Any], size: int) -> Dump:
    """Checked; `size` is that of the file: a pickle can name one thing any number of times, for two
    bytes each.
    """
    version = _text(raw["version"])
    if not re.match(r"^2(\.\d+)?$", version):
        raise BadInput(
            f"Flight Recorder dump of version {version[:20]}; only versions 2.x can be read"
        )
    rows = raw.get("entries") or []
    if not isinstance(rows, list | tuple) or len(rows) > min(
        MAX_ENTRIES, max(16, size // _ENTRY_BYTES)
    ):
        raise BadInput("damaged dump: its entries are not a list, or too many")
    members, names, unnamed = _groups(raw.get("pg_config"), size)
    dump = Dump(version, [], members, names, unnamed=unnamed)
    for row in rows:
        if not isinstance(row, dict):
            raise BadInput("damaged dump: an entry is not a record")
        entry = _entry(row, names)
        dump.entries.append(entry)
    if rows:
        dump.backend = _text(rows[-1].get("profiling_name")).partition(":")[0]
        # Numbers start at 0, so that a later first one means that the ring has lost the beginning.
        dump.overwritten = _number(rows[0].get("record_id", rows[0].get("id"))) > 0
    seen = {e.group for e in dump.entries}
    status = raw.get("pg_status")
    dump.groups_seen = max(len(seen), len(status) if isinstance(status, dict) else 0)
    if isinstance(status, dict):
        if dump.backend == "gloo":
            dump.hidden_p2p = _hidden_p2p(rows, status)
        else:
            _read_status(dump, rows, status)
    return dump


def _read_status(dump: Dump, rows: list[Any] | tuple[Any, ...], status: dict[Any, Any]) -> None:
    """What `pg_status` adds: how far each group has come, and whether the pending operations are
    all among the entries.
    """
    names = _groups_by_number(dump, rows, status)
    enqueued = {}
    for number, name in names.items():
        of_group = status.get(number)
        if isinstance(of_group, dict):
            dump.completed[name] = max(0, _number(of_group.get("last_completed_collective")))
            enqueued[name] = _number(of_group.get("last_enqueued_collective"))
    oldest: dict[str, int] = {}
    for e in dump.entries:
        if e.state != "done" and not e.p2p:
            oldest.setdefault(e.group, e.seq)
    pending = {name for name, last in enqueued.items() if last > dump.completed[name]}
    dump.pending_whole = len(names) == len(status) and all(
        name in oldest and oldest[name] <= dump.completed[name] + 1 for name in pending
    )
    done = any(e.state == "done" for e in dump.entries)
    dump.only_active = dump.pending_whole and not done and any(dump.completed.values())


def _groups_by_number(
    dump: Dump, rows: list[Any] | tuple[Any, ...], status: dict[Any, Any]
) -> dict[object, str]:
    """Keys of `pg_status` -> names of groups.

    `pg_status` and `pg_config` name the groups that the process has used, by its own numbers and by
    names that are numbers too, both in the order in which the groups were made. Entries have both.
    """
    certain = {str(row.get("pg_id")): _group_of(row)[0] for row in rows}
    numbers = sorted(status, key=_number)
    names = sorted(dump.members, key=creation_order)
    found = dict(zip(numbers, names, strict=False)) if len(names) == len(numbers) else {}
    if any(str(n) in certain and certain[str(n)] != name for n, name in found.items()):
        found = {}
    return found or {n: certain[str(n)] for n in numbers if str(n) in certain}


def creation_order(name: str) -> tuple[int, int, str]:
    """A key that sorts names of groups as they were made: torch names them by number."""
    number = number_in(name)
    return (0, number, "") if number >= 0 else (1, 0, name)


def _hidden_p2p(rows: list[Any] | tuple[Any, ...], status: dict[Any, Any]) -> dict[str, int]:
    """gloo's `op_id` and `last_enqueued_collective` count sends and recvs, which have no records."""
    last = {_group_of(row)[0]: (str(row.get("pg_id")), _number(row.get("op_id"))) for row in rows}
    out: dict[str, int] = {}
    for group, (number, op_id) in last.items():
        of_group = status.get(number)
        enqueued = (
            _number(of_group.get("last_enqueued_collective")) if isinstance(of_group, dict) else 0
        )
        if enqueued > op_id > 0:
            out[group] = enqueued - op_id
    return out


def _groups(config: object, size: int) -> tuple[dict[str, list[int]], dict[str, str], list[int]]:
    """Member sets and descriptions by group, and the members that gloo shows without a name."""
    members: dict[str, list[int]] = {}
    names: dict[str, str] = {}
    if not isinstance(config, dict):
        return members, names, []
    told: dict[int, list[int]] = {}
    for key, value in config.items():
        if not isinstance(key, str) or not isinstance(value, dict):
            continue
        ranks = value.get("ranks")
        if isinstance(ranks, str):
            members[key] = _ranks(ranks)
        elif isinstance(ranks, list | tuple):
            members[key] = (
                told[id(ranks)]
                if id(ranks) in told
                else told.setdefault(id(ranks), sorted({_number(r) for r in ranks}))
            )
        names[key] = _text(value.get("desc"))
    _check_members(members, size)
    unnamed = members.pop("", [])
    names.pop("", None)
    return {k: v for k, v in members.items() if v}, names, unnamed


def _check_members(members: dict[str, list[int]], size: int) -> None:
    """Raises BadInput: more members than the file has bytes for, or a rank that no job has."""
    lists = {id(ranks): ranks for ranks in members.values() if ranks}
    if sum(map(len, lists.values())) > size:
        raise BadInput("damaged dump: its groups have more members than fit into the file")
    highest = max((ranks[-1] for ranks in lists.values()), default=0)
    if highest >= MAX_RANKS or any(ranks[0] < 0 for ranks in lists.values()):
        raise BadInput(
            f"damaged dump: a group has rank {highest}; a job has at most {MAX_RANKS:,} ranks"
        )


@lru_cache(maxsize=1024)
def _ranks(text: str) -> list[int]:
    """ "[0, 1]" -> [0, 1]. All dumps of a job tell the same lists: one object each, which no one
    changes.
    """
    return sorted({int(r) for r in re.findall(r"[0-9]{1,9}", text)})


def _entry(row: dict[Any, Any], names: dict[str, str]) -> Entry:
    group, description = _group_of(row)
    if description and description not in ("undefined", names.get(group)):
        names.setdefault(group, description)
    backend, op, peer, coalesced = _name(_text(row.get("profiling_name")))
    return Entry(
        group=group,
        seq=_number(row.get("collective_seq_id", row.get("seq_id"))),
        op=op,
        state=_state(row, backend),
        p2p=peer >= 0 or row.get("is_p2p") is True,
        p2p_seq=_number(row.get("p2p_seq_id")),
        peer=peer,
        shapes=_shapes(row.get("input_sizes")),
        dtype=_dtypes(row.get("input_dtypes")),
        site=_site(row.get("frames")),
        thread=_number(row.get("thread_id")),
        entered_ns=_number(row.get("time_created_ns")),
        left_ns=_number(row.get("time_discovered_completed_ns")),
        size=_size(row) if op in ("all_gather", "gather") else 0,
        coalesced=coalesced,
        record=_number(row.get("record_id", row.get("id"))),
    )


def public_name(name: str) -> str:
    """torch.distributed's name for what the recorder calls an operation, without its backend."""
    return _PUBLIC.get(name, name)


@lru_cache(maxsize=4096)
def _name(profiling_name: str) -> tuple[str, str, int, bool]:
    """(backend, public name, peer within the group or -1, is the end of a batch)."""
    backend, _, name = profiling_name.partition(":")
    if match := _P2P.match(name):
        return backend, match[1], int(match[3]), False
    return backend, public_name(name), -1, name.endswith("coalesced")


def _group_of(row: dict[Any, Any]) -> tuple[str, str]:
    group = row.get("process_group")
    if isinstance(group, list | tuple) and group:
        return _text(group[0]), _text(group[1]) if len(group) > 1 else ""
    if isinstance(group, str):
        return group, ""
    return str(_number(row.get("pg_id"))), ""


def _state(row: dict[Any, Any], backend: str) -> OpState:
    """gloo never leaves `scheduled`: there, `retired` says that it is done.

    NCCL retires what timed out, too.
    """
    state = row.get("state")
    if state == "completed" or (backend == "gloo" and row.get("retired") is True):
        return "done"
    return "started" if state == "started" else "entered"


def _size(row: dict[Any, Any]) -> int:
    """gloo lists an all_gather's outputs as one shape with the number of members in front."""
    shapes = [row.get("input_sizes"), row.get("output_sizes")]
    one, many = (s[0] if isinstance(s, list | tuple) and s else None for s in shapes)
    if not isinstance(one, list | tuple) or not isinstance(many, list | tuple):
        return 0
    return _number(many[0]) if len(many) == len(one) + 1 else 0


def _shapes(value: object) -> str:
    """[[4, 8], [2]] -> "[4, 8],[2]"."""
    if not isinstance(value, list | tuple):
        return ""
    return ",".join(
        [_shape(shape) for shape in value[:_MAX_SHAPES] if isinstance(shape, list | tuple)]
    )


def _shape(shape: list[Any] | tuple[Any, ...]) -> str:
    # Lists inside would be written out with all that is in them, which can be without end.
    return str([_number(n) for n in shape[:_MAX_DIMENSIONS]])


def _dtypes(value: object) -> str:
    if not isinstance(value, list | tuple) or not value:
        return ""
    if len(value) == 1:
        return _dtype(_text(value[0]))
    return ",".join(dict.fromkeys(_dtype(_text(v)) for v in value[:_MAX_SHAPES]))


def _dtype(name: str) -> str:
    return _DTYPES.get(name, name)


def _site(frames: object) -> str:
    """The innermost frame that is not torch's own, as "function (file:line)"."""
    if not isinstance(frames, list | tuple):
        return ""
    innermost = ""
    for frame in frames[:_MAX_FRAMES]:
        if isinstance(frame, dict):
            file = _text(frame.get("filename"))
            site = f"{_text(frame.get('name'))} ({file}:{_number(frame.get('line'))})"
            if not _is_torch(file):
                return site
            innermost = innermost or site
    return innermost


@lru_cache(maxsize=4096)
def _is_torch(file: str) -> bool:
    return _TORCH.search(file) is not None


def _text(value: object) -> str:
    return value[:1000] if isinstance(value, str) else ""


def _number(value: object) -> int:
    """A whole number of at most 64 bits, 0 for what is none: a pickle has numbers of any size."""
    if isinstance(value, str):
        return number_in(value, 0)
    if isinstance(value, int | float) and abs(value) < 2**63:
        return int(value)
    return 0
