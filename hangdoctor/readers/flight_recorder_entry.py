"""One record of a Flight Recorder dump as plain checked data: names, numbers, shapes and the line of
the job that made the call.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec import Struct

from ..model.operations import OpState
from ..text.late import late
from ..text.ranges import number_in

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
_P2P = late(r"^(send|recv) ([0-9]{1,9})(?:->|<-)([0-9]{1,9})$")
# Frames of torch itself, of decorators and of thin layers around its calls say nothing about where the job
# called it.
_TORCH = late(
    r"[/\\]torch[/\\](distributed|utils|autograd|nn|_ops|_compile|_dynamo)|[/\\]torch[/\\]_\w+\.py"
    r"|[/\\](?:contextlib|functools|typing_extensions)\.py$|[/\\]deepspeed[/\\](?:comm|utils)[/\\]"
)

UNDESCRIBED = "undefined"  # what torch calls a group of which nobody has said what it is for


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


def entry_of(row: dict[Any, Any], names: dict[str, str]) -> Entry:
    """The record that a row of the dump is; what it calls its group is added to `names`."""
    group, description = group_of(row)
    if description and description not in (UNDESCRIBED, names.get(group)):
        names.setdefault(group, description)
    backend, op, peer, coalesced = _name(text_in(row.get("profiling_name")))
    return Entry(
        group=group,
        seq=whole_number(row.get("collective_seq_id", row.get("seq_id"))),
        op=op,
        state=_state(row, backend),
        p2p=peer >= 0 or row.get("is_p2p") is True,
        p2p_seq=whole_number(row.get("p2p_seq_id")),
        peer=peer,
        shapes=_shapes(row.get("input_sizes")),
        dtype=_dtypes(row.get("input_dtypes")),
        site=_site(row.get("frames")),
        thread=whole_number(row.get("thread_id")),
        entered_ns=whole_number(row.get("time_created_ns")),
        left_ns=whole_number(row.get("time_discovered_completed_ns")),
        size=_size(row) if op in ("all_gather", "gather") else 0,
        coalesced=coalesced,
        record=whole_number(row.get("record_id", row.get("id"))),
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


def group_of(row: dict[Any, Any]) -> tuple[str, str]:
    """A record's group as the dump names it, and its description; "" where there is none."""
    group = row.get("process_group")
    if isinstance(group, list | tuple) and group:
        return text_in(group[0]), text_in(group[1]) if len(group) > 1 else ""
    if isinstance(group, str):
        return group, ""
    return str(whole_number(row.get("pg_id"))), ""


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
    return whole_number(many[0]) if len(many) == len(one) + 1 else 0


def _shapes(value: object) -> str:
    """[[4, 8], [2]] -> "[4, 8],[2]"."""
    if not isinstance(value, list | tuple):
        return ""
    return ",".join(
        [_shape(shape) for shape in value[:_MAX_SHAPES] if isinstance(shape, list | tuple)]
    )


def _shape(shape: list[Any] | tuple[Any, ...]) -> str:
    # Lists inside would be written out with all that is in them, which can be without end.
    return str([whole_number(n) for n in shape[:_MAX_DIMENSIONS]])


def _dtypes(value: object) -> str:
    if not isinstance(value, list | tuple) or not value:
        return ""
    if len(value) == 1:
        return _dtype(text_in(value[0]))
    return ",".join(dict.fromkeys(_dtype(text_in(v)) for v in value[:_MAX_SHAPES]))


def _dtype(name: str) -> str:
    return _DTYPES.get(name, name)


def _site(frames: object) -> str:
    """The innermost frame that is not torch's own, as "function (file:line)"."""
    if not isinstance(frames, list | tuple):
        return ""
    innermost = ""
    for frame in frames[:_MAX_FRAMES]:
        if isinstance(frame, dict):
            file = text_in(frame.get("filename"))
            site = f"{text_in(frame.get('name'))} ({file}:{whole_number(frame.get('line'))})"
            if not _is_torch(file):
                return site
            innermost = innermost or site
    return innermost


@lru_cache(maxsize=4096)
def _is_torch(file: str) -> bool:
    return _TORCH.search(file) is not None


def text_in(value: object) -> str:
    """At most 1,000 characters; "" for what is no text."""
    return value[:1000] if isinstance(value, str) else ""


def whole_number(value: object) -> int:
    """A whole number of at most 64 bits, 0 for what is none: a pickle has numbers of any size."""
    if isinstance(value, str):
        return number_in(value, 0)
    if isinstance(value, int | float) and abs(value) < 2**63:
        return int(value)
    return 0
