"""Memory of a rank; norm and zeros over all weights of a model whose parts lie on many ranks."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist


def peak_memory(device: torch.device) -> float:
    """Most bytes that this rank has had: of its GPU, on a CPU of its own memory."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def counted_once(engine: Any, parameters: Iterable[Any]) -> Iterator[Any]:
    """Those that this rank counts, so that every weight of the model counts once: not what another
    tensor parallel rank or the first stage holds too.
    """
    is_first = engine.grid.get_slice_parallel_rank() == 0
    for parameter in parameters:
        is_slice = getattr(parameter, "tensor_model_parallel", False)
        if (is_first or is_slice) and not getattr(parameter, "ds_pipe_replicated", False):
            yield parameter


def params_norm(engine: Any) -> float:
    """The 2-norm of all weights, as the model computes with them."""
    total = torch.zeros((), dtype=torch.float64, device=engine.device)
    for parameter in counted_once(engine, engine.module.parameters()):
        norm = torch.linalg.vector_norm(parameter.detach(), dtype=torch.float32)
        total += norm.double().square()
    dist.all_reduce(total, group=engine.grid.get_model_parallel_group())
    return float(total.sqrt())


def zeros(engine: Any, gradient: Any) -> float:
    """How many gradients of the whole model are exactly zero; `gradient` finds a parameter's where
    each replica has all of them. With ZeRO-1 a replica has its share alone.
    """
    total = torch.zeros((), dtype=torch.float64, device=engine.device)
    is_shared_out = hasattr(engine.optimizer, "averaged_gradients")
    pairs = _own_share(engine.optimizer) if is_shared_out else _whole(engine, gradient)
    found = [(p, g) for p, g in pairs if g is not None]
    counted = {id(p) for p in counted_once(engine, [p for p, _ in found])}
    for parameter, grad in found:
        if id(parameter) in counted:
            total += grad.numel() - torch.count_nonzero(grad)
    group = None if is_shared_out else engine.grid.get_model_parallel_group()
    dist.all_reduce(total, group=group)
    return float(total)


def _whole(engine: Any, gradient: Any) -> Iterator[tuple[Any, Any]]:
    for parameter in engine.module.parameters():
        yield parameter, gradient(engine, parameter)


def _own_share(optimizer: Any) -> Iterator[tuple[Any, Any]]:
    """Pieces of gradients as ZeRO-1 has them; what follows the last parameter's is padding."""
    for i, owned in enumerate(optimizer.params_in_partition):
        pieces = optimizer.averaged_gradients.get(i) or []
        real = [g for g in pieces if not getattr(g, "_zero_padding", False)]
        yield from zip(owned, real, strict=False)
