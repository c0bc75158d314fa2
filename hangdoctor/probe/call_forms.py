"""Calls that the C extension may describe itself: where their parameters are, and which of them
make up the signature.
"""

from __future__ import annotations

from typing import Any

from . import format as fmt
from .signatures import Describe

# The tensor whose shape and dtype are, with the reduce operation, the whole signature; "" for operations without any.
_TENSOR = {
    "all_reduce": "tensor",
    "reduce": "tensor",
    "broadcast": "tensor",
    "all_gather_into_tensor": "input_tensor",
    "gather": "tensor",
    "scatter": "tensor",
    "reduce_scatter_tensor": "input",
    "all_to_all_single": "input",
    "send": "tensor",
    "recv": "tensor",
    "isend": "tensor",
    "irecv": "tensor",
    "barrier": "",
    "all_gather_object": "",
    "gather_object": "",
    "broadcast_object_list": "",
    "scatter_object_list": "",
}
_ZERO_ROOT = ("gather", "scatter", "gather_object", "broadcast_object_list", "scatter_object_list")
_TAG = 3  # place of the tag in sends and receives
_SPLITS = (
    "output_split_sizes",
    "input_split_sizes",
)  # where given, members may differ rightly: Python describes


def tag_flags(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The tag of a send or receive as it lies in a record's flags; 0 where it is no number, or has
    no room.
    """
    tag = args[_TAG] if len(args) > _TAG else kwargs.get("tag", 0)
    has_room = type(tag) is int and 0 <= tag < fmt.TAG_LIMIT
    return tag + 1 << fmt.TAG_SHIFT if has_room else 0


def form_of(describe: Describe, direction: int) -> tuple[tuple[str, ...], dict[str, int]]:
    """Names of the parameters, and what the extension must know of them by its own words
    (`function_new` in _record.c).
    """
    code = describe.__code__
    names = code.co_varnames[: code.co_argcount]
    op: str = describe.__name__
    form = {
        "fast": int(op in _TENSOR),
        "required": code.co_argcount - len(describe.__defaults__ or ()),
        "zero_root": int(op in _ZERO_ROOT),
        "always_async": int(op in ("isend", "irecv")),
        "direction": direction,
        "absent": sum(1 << place for place, name in enumerate(names) if name in _SPLITS),
    }
    roles: dict[str, tuple[Any, ...]] = {
        "tensor": (_TENSOR.get(op),),
        "reduce": ("op",),
        "group": ("group",),
        "async": ("async_op",),
        "root": ("src", "dst"),
        "group_root": ("group_src", "group_dst"),
        "tag": ("tag",),
    }
    for place, name in enumerate(names):
        form |= {role: place for role, called in roles.items() if name in called}
    return names, form
