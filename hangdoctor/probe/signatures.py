"""What each function of torch.distributed is about: group, root, and the key of its signature.

One small function an operation, with torch's own parameter names and order (torch 2.4 to 2.13), so
that Python's argument binding does the work. Each returns ``(key, group, root, group_root,
async_op)``: `key` is hashable and begins with the operation's name; `root` is a global rank or
None, `group_root` a rank within the group or None.

Nothing here runs code of the job: only objects of known types are asked for anything, and outside
of the job's modes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import torchnames

Described = tuple[tuple[Any, ...], Any, Any, Any, bool]
Describe = Callable[..., Described]

_LOOK_AT = 8  # tensors of a list that are looked at: lists are as long as groups are wide


class NotAnOperation(Exception):
    """A compiler's tracing, nothing that communicates."""


_plain: frozenset[type] = frozenset()
_reduce_names: dict[int, str] = {}
_modes: Callable[[], int] = torchnames.no_mode
_UNKNOWN = ("", "")
_LISTS = (list, tuple)  # what a subclass answers is the job's code


def learn_torch() -> None:
    """Look torch's types up, once it is imported."""
    global _plain, _reduce_names, _modes
    _modes = torchnames.any_mode()
    _plain = torchnames.plain_tensor_types()
    _reduce_names = {id(None): "sum", **torchnames.reduce_op_names()}


def _of(tensor: Any) -> tuple[Any, Any]:
    if type(tensor) in _plain:
        if _modes():
            with torchnames.outside_of_modes():
                return tensor.shape, tensor.dtype
        return tensor.shape, tensor.dtype
    if torchnames.is_traced(tensor):
        raise NotAnOperation
    return _UNKNOWN


def _of_list(tensors: Any) -> tuple[Any, ...]:
    """Shapes of the first few, their number, dtype of the first."""
    if type(tensors) not in _LISTS or not tensors:
        return ("", "")
    seen = [_of(t) for t in tensors[:_LOOK_AT]]
    return (len(tensors), tuple(s for s, _ in seen)), seen[0][1]


def _of_even(tensors: Any, like: Any) -> tuple[Any, Any]:
    """Shape and dtype of `like`, without the shape where the list is uneven: then members may
    differ rightly.
    """
    shape, dtype = _of(like)
    if (
        type(tensors) in _LISTS
        and tensors
        and (_of(tensors[0])[0] != shape or _of(tensors[-1])[0] != shape)
    ):
        shape = ""
    return shape, dtype


def _uneven(splits: Any) -> bool:
    """Whether sizes are given: an array of them says no more of itself than that it is there."""
    return splits is not None and (type(splits) not in _LISTS or bool(splits))


def _reduce(op: Any) -> str:
    known = _reduce_names.get(id(op))
    if known is not None:
        return known
    if type(op) not in torchnames.reduce_op_types():
        return "other"
    text = str(op).lower()
    return next((name for name in _reduce_names.values() if name in text), "other")


def is_constant(op: Any) -> bool:
    """Whether a reduce operation is one of torch's own, known by its identity for as long as torch
    is there.
    """
    return id(op) in _reduce_names


# --------------------------------------------------------------------------- one function an operation


def all_reduce(tensor: Any, op: Any = None, group: Any = None, async_op: bool = False) -> Described:
    """By shape and dtype of the tensor, and the reduce operation."""
    # Spelled out: this is the one that trainings call most.
    if type(tensor) in _plain and not _modes():
        reduction = _reduce_names.get(id(op)) or _reduce(op)
        key = ("all_reduce", tensor.shape, tensor.dtype, reduction)
        return key, group, None, None, async_op is True
    return ("all_reduce", *_of(tensor), _reduce(op)), group, None, None, async_op is True


def all_reduce_coalesced(
    tensors: Any, op: Any = None, group: Any = None, async_op: bool = False
) -> Described:
    """By shapes of the tensors, dtype of the first, and the reduce operation."""
    return (
        ("all_reduce_coalesced", *_of_list(tensors), _reduce(op)),
        group,
        None,
        None,
        async_op is True,
    )


def reduce(
    tensor: Any,
    dst: Any = None,
    op: Any = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: Any = None,
) -> Described:
    """By shape and dtype of the tensor, and the reduce operation; root `dst`."""
    return ("reduce", *_of(tensor), _reduce(op)), group, dst, group_dst, async_op is True


def broadcast(
    tensor: Any, src: Any = None, group: Any = None, async_op: bool = False, group_src: Any = None
) -> Described:
    """By shape and dtype of the tensor; root `src`."""
    return ("broadcast", *_of(tensor), ""), group, src, group_src, async_op is True


def all_gather(
    tensor_list: Any, tensor: Any, group: Any = None, async_op: bool = False
) -> Described:
    """By shape and dtype of the input, without the shape where outputs are uneven."""
    return ("all_gather", *_of_even(tensor_list, tensor), ""), group, None, None, async_op is True


def all_gather_into_tensor(
    output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False
) -> Described:
    """By shape and dtype of the input."""
    return ("all_gather_into_tensor", *_of(input_tensor), ""), group, None, None, async_op is True


def all_gather_coalesced(
    output_tensor_lists: Any, input_tensor_list: Any, group: Any = None, async_op: bool = False
) -> Described:
    """By shapes of the inputs and dtype of the first."""
    return (
        ("all_gather_coalesced", *_of_list(input_tensor_list), ""),
        group,
        None,
        None,
        async_op is True,
    )


def gather(
    tensor: Any,
    gather_list: Any = None,
    dst: Any = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: Any = None,
) -> Described:
    """By shape and dtype of the input; root `dst`, 0 by default."""
    return (
        ("gather", *_of(tensor), ""),
        group,
        or_zero(dst, group_dst),
        group_dst,
        async_op is True,
    )


def scatter(
    tensor: Any,
    scatter_list: Any = None,
    src: Any = None,
    group: Any = None,
    async_op: bool = False,
    group_src: Any = None,
) -> Described:
    """By shape and dtype of the output, which every member has; root `src`, 0 by default."""
    # The output, which every member has; only the root has inputs.
    return (
        ("scatter", *_of(tensor), ""),
        group,
        or_zero(src, group_src),
        group_src,
        async_op is True,
    )


def reduce_scatter(
    output: Any, input_list: Any, op: Any = None, group: Any = None, async_op: bool = False
) -> Described:
    """By shapes of the inputs, dtype of the first, and the reduce operation."""
    return (
        ("reduce_scatter", *_of_list(input_list), _reduce(op)),
        group,
        None,
        None,
        async_op is True,
    )


def reduce_scatter_tensor(
    output: Any, input: Any, op: Any = None, group: Any = None, async_op: bool = False
) -> Described:
    """By shape and dtype of the input, and the reduce operation."""
    return ("reduce_scatter_tensor", *_of(input), _reduce(op)), group, None, None, async_op is True


def all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> Described:
    """By shape and dtype of the input, without the shape where splits are given."""
    shape, dtype = _of(input)
    if _uneven(output_split_sizes) or _uneven(input_split_sizes):
        shape = ""  # members may differ rightly
    return ("all_to_all_single", shape, dtype, ""), group, None, None, async_op is True


def all_to_all(
    output_tensor_list: Any, input_tensor_list: Any, group: Any = None, async_op: bool = False
) -> Described:
    """By shapes of the inputs where all are even, and their dtype."""
    shapes, dtype = _of_list(input_tensor_list)
    outputs, _ = _of_list(output_tensor_list)
    even = shapes == outputs and len(set(shapes[1] if shapes else ())) == 1
    return ("all_to_all", shapes if even else "", dtype, ""), group, None, None, async_op is True


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Described:
    """By its name alone."""
    return ("barrier", "", "", ""), group, None, None, async_op is True


def monitored_barrier(
    group: Any = None, timeout: Any = None, wait_all_ranks: bool = False
) -> Described:
    """By its name alone."""
    return ("monitored_barrier", "", "", ""), group, None, None, False


def all_gather_object(object_list: Any, obj: Any, group: Any = None) -> Described:
    """By its name alone: objects may differ."""
    return ("all_gather_object", "", "", ""), group, None, None, False


def gather_object(
    obj: Any,
    object_gather_list: Any = None,
    dst: Any = None,
    group: Any = None,
    group_dst: Any = None,
) -> Described:
    """By its name alone: objects may differ; root `dst`, 0 by default."""
    return ("gather_object", "", "", ""), group, or_zero(dst, group_dst), group_dst, False


def broadcast_object_list(
    object_list: Any, src: Any = None, group: Any = None, device: Any = None, group_src: Any = None
) -> Described:
    """By its name alone: objects may differ; root `src`, 0 by default."""
    return ("broadcast_object_list", "", "", ""), group, or_zero(src, group_src), group_src, False


def scatter_object_list(
    scatter_object_output_list: Any,
    scatter_object_input_list: Any = None,
    src: Any = None,
    group: Any = None,
    group_src: Any = None,
) -> Described:
    """By its name alone: objects may differ; root `src`, 0 by default."""
    return ("scatter_object_list", "", "", ""), group, or_zero(src, group_src), group_src, False


def send(
    tensor: Any, dst: Any = None, group: Any = None, tag: int = 0, group_dst: Any = None
) -> Described:
    """By shape and dtype; the peer `dst` is in the place of the root."""
    return ("send", *_of(tensor), ""), group, dst, group_dst, False


def recv(
    tensor: Any, src: Any = None, group: Any = None, tag: int = 0, group_src: Any = None
) -> Described:
    """By shape and dtype; the peer `src` is in the place of the root."""
    return ("recv", *_of(tensor), ""), group, src, group_src, False


def isend(
    tensor: Any, dst: Any = None, group: Any = None, tag: int = 0, group_dst: Any = None
) -> Described:
    """As `send`, without waiting."""
    return ("send", *_of(tensor), ""), group, dst, group_dst, True


def irecv(
    tensor: Any, src: Any = None, group: Any = None, tag: int = 0, group_src: Any = None
) -> Described:
    """As `recv`, without waiting."""
    return ("recv", *_of(tensor), ""), group, src, group_src, True


def destroy_process_group(group: Any = None) -> Described:
    """By its name alone."""
    return ("destroy_process_group", "", "", ""), group, None, None, False


def or_zero(root: Any, group_root: Any) -> Any:
    """The root of a call that names none: rank 0."""
    return 0 if root is None and group_root is None else root


COLLECTIVES: dict[str, Describe] = {
    f.__name__: f
    for f in (
        *(all_reduce, all_reduce_coalesced, reduce, broadcast),
        *(all_gather, all_gather_into_tensor, all_gather_coalesced, gather, scatter),
        *(reduce_scatter, reduce_scatter_tensor, all_to_all_single, all_to_all, barrier),
        *(all_gather_object, gather_object, broadcast_object_list, scatter_object_list),
    )
}
# New names of the same operation; recorded under the one that most versions have. Older ones (_all_gather_base) call these,
# and their deprecation blames the caller's line, which a frame of ours in between would hide.
COLLECTIVES |= {
    "all_gather_single": all_gather_into_tensor,
    "reduce_scatter_single": reduce_scatter_tensor,
}
# Counted by name, not among the group's collectives.
NAMED: dict[str, Describe] = {
    "monitored_barrier": monitored_barrier,
    "destroy_process_group": destroy_process_group,
}
P2P: dict[str, Describe] = {"send": send, "recv": recv, "isend": isend, "irecv": irecv}


def render(key: tuple[Any, ...]) -> str:
    """A signature as the box keeps it: op, reduce op, dtype and shapes between tabs."""
    op, shapes, dtype, *rest = key
    if not isinstance(shapes, tuple):
        text = str(shapes)
    elif type(shapes) is tuple and len(shapes) == 2 and isinstance(shapes[1], tuple):
        text = ",".join(_shape(s) for s in shapes[1])
        if shapes[0] > len(shapes[1]):
            text += f",...({shapes[0]})"
    else:
        text = _shape(shapes)
    return "\t".join((op, rest[0] if rest else "", torchnames.dtype_name(dtype), text))


def _shape(shape: Any) -> str:
    return "" if shape == "" else f"[{', '.join(map(str, shape))}]"
