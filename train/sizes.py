"""Memory of a rank; norm and zeros over all weights of a model whose parts lie on many ranks."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from .digests.parts import keeps_shares, parts


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


def adam_variance(engine: Any) -> dict[str, float]:
    """Norms and largest element of Adam's second moment (exp_avg_sq) over all weights: where they are
    largest, at the end of the warm-up, a training is most likely to diverge.

    Source: Li, Zhang and He, The Stability-Efficiency Dilemma (arXiv:2108.06084).
    """
    optimizer = engine.optimizer
    counted = {id(p) for p in counted_once(engine, engine.module.parameters())}
    names = {name for name, p in engine.module.named_parameters() if id(p) in counted}
    sums = torch.zeros(2, dtype=torch.float64, device=engine.device)
    largest = torch.zeros(1, dtype=torch.float64, device=engine.device)
    for part in parts(engine.module, optimizer):
        if part.kind == "exp_avg_sq" and part.name in names and part.tensor.numel():
            norms = [torch.linalg.vector_norm(part.tensor, order) for order in (1, 2, math.inf)]
            values = torch.stack(norms).double()
            sums[0] += values[0]
            sums[1] += values[1].square()
            largest = torch.maximum(largest, values[2:])
    is_shared_out = keeps_shares(optimizer)
    group = None if is_shared_out else engine.grid.get_model_parallel_group()
    dist.all_reduce(sums, group=group)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    l1, squares = sums.tolist()
    return {
        "variance l1": l1,
        "variance l2": math.sqrt(squares),
        "variance max": float(largest),
    }


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
