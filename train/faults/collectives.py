"""Faults made of collectives.

The context carries the group of the operation that was due and its tensor.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


def half_of(tensor: torch.Tensor) -> torch.Tensor:
    """The first half of its elements, one at least: what a wrong shape sends."""
    flat = tensor.detach().reshape(-1)
    return flat[: max(1, flat.numel() // 2)].clone()


def in_another_dtype(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements with two bytes each, in the dtype of the two that it does not have."""
    other = torch.float16 if tensor.dtype == torch.bfloat16 else torch.bfloat16
    return tensor.detach().to(other)


def _skip(context: dict[str, Any]) -> bool:
    """Leaves the operation out; where the engine wraps it in work that must be done, the next
    all-reduce in there.
    """
    if not context["engine"]:
        return True
    _hang_as_nccl_does()
    original = dist.all_reduce

    def nothing(*_: Any, **__: Any) -> None:
        dist.all_reduce = original

    dist.all_reduce = nothing
    return False


def _extra(context: dict[str, Any]) -> bool:
    """Before another all-reduce of this size one more of it, else a barrier: gloo aborts where
    sizes differ.
    """
    if context["engine"]:
        dist.barrier(group=context["group"])
    else:
        dist.all_reduce(context["tensor"].detach().clone(), group=context["group"])
    return False


def _wrong_group(context: dict[str, Any]) -> bool:
    """The right operation on the group of all ranks."""
    dist.all_reduce(context["tensor"].detach().clone())
    return True


def _wrong_op(context: dict[str, Any]) -> bool:
    """Receives from a peer that never broadcasts."""
    peer = next(r for r in context["ranks"] if r != dist.get_rank())
    dist.broadcast(context["tensor"].detach().clone(), src=peer, group=context["group"])
    return True


def _wrong_shape(context: dict[str, Any]) -> bool:
    _hang_as_nccl_does()
    dist.all_reduce(half_of(context["tensor"]), group=context["group"])
    return True


def _wrong_dtype(context: dict[str, Any]) -> bool:
    _hang_as_nccl_does()
    dist.all_reduce(in_another_dtype(context["tensor"]), group=context["group"])
    return True


def _hang_as_nccl_does() -> None:
    """NCCL hangs on sizes that differ; gloo would abort the process that receives too much: let
    nothing arrive.
    """
    if dist.get_backend() == "gloo":
        _blackhole({})


def _wrong_root(context: dict[str, Any]) -> bool:
    """The root waits for a peer's broadcast, the peers for the root's: no one sends."""
    peer = next(r for r in context["ranks"] if r != dist.get_rank())
    dist.broadcast(context["tensor"].clone(), src=peer, group=context["group"])
    return True


def _end(context: dict[str, Any]) -> bool:
    """A collective that no peer takes part in any more, on connections that do not tell that they
    left.
    """
    _hang_as_nccl_does()
    dist.all_reduce(context["tensor"], group=context["group"])
    return False


def _connected_peers() -> list[int]:
    """File descriptors of established TCP connections, the rendezvous store's left out."""
    found, store = [], int(os.environ.get("MASTER_PORT", "0"))
    for name in os.listdir("/proc/self/fd"):
        try:
            end = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with end:
            try:
                if (
                    end.family in (socket.AF_INET, socket.AF_INET6)
                    and end.type == socket.SOCK_STREAM
                ):
                    ports = {end.getsockname()[1], end.getpeername()[1]}
                    if store not in ports:
                        found.append(int(name))
            except OSError:  # listening, or not a connection
                continue
    return found


_kept: list[Any] = []


def _blackhole(_: dict[str, Any]) -> bool:
    """Put one end of a mute socket pair in the place of every connection.

    The connections themselves stay open under other numbers: no peer sees an end, bytes just
    vanish.
    """
    for fd in _connected_peers():
        near, far = socket.socketpair()
        near.setblocking(os.get_blocking(fd))
        _kept.extend((os.dup(fd), far))
        os.dup2(near.fileno(), fd)
    return False


COLLECTIVE_ACTS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "skip": _skip,
    "extra": _extra,
    "wrong_group": _wrong_group,
    "wrong_op": _wrong_op,
    "wrong_shape": _wrong_shape,
    "wrong_dtype": _wrong_dtype,
    "wrong_root": _wrong_root,
    "end": _end,
    "blackhole": _blackhole,
}
