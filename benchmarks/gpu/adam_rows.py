"""One step of AdamW over 160 million parameters, in one flat tensor and in a hundred."""

from __future__ import annotations

from typing import Any

import torch

from hangdoctor.train.kernels import apex_support, registry

from .kernel_inputs import Sizes
from .kernel_truths import difference
from .options import Options
from .timing import milliseconds
from .worker import NotHere

FLAVOURS = list(registry.FLAVOURS["adam"])
LIMIT = 1e-5
_BYTES = 28  # a parameter: it and two moments are read and written, the gradient is read, in fp32
_OPTIONS = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8}
_DECAY = 0.1
_STEPS = 3


def measure(flavour: str, size: Sizes, options: Options) -> dict[str, Any]:
    """The rest of a row: time, bytes and error.

    Raises:
        NotHere: the flavour does not work here.
    """
    if flavour == "apex":
        why = apex_support.unavailable()
        if why:
            raise NotHere(why)
    torch.manual_seed(0)
    error = _error(flavour, options)
    step = _step(flavour, _parameters(size, options), options)
    ms = milliseconds(step, options)
    return {
        "forward_ms": ms,
        "backward_ms": 0.0,
        "forward_bytes": _BYTES * size["count"] * size["each"],
        "backward_bytes": 0,
        "error": error,
        "limit": LIMIT,
    }


def _parameters(size: Sizes, options: Options) -> list[torch.nn.Parameter]:
    made = []
    for _ in range(size["count"]):
        p = torch.nn.Parameter(torch.randn(size["each"], device=options.device))
        p.grad = torch.randn_like(p)
        made.append(p)
    return made


def _step(flavour: str, parameters: list[torch.nn.Parameter], options: Options) -> Any:
    groups = [{"params": parameters, "weight_decay": _DECAY}]
    if flavour != "compile":
        return registry.FLAVOURS["adam"][flavour](groups, **_OPTIONS).step
    torch._dynamo.reset()
    # A count of steps on the CPU would be another graph at each step.
    capturable = options.on_gpu
    optimizer = torch.optim.AdamW(groups, foreach=True, capturable=capturable, **_OPTIONS)
    return torch.compile(optimizer.step, backend="aot_eager" if options.smoke else "inductor")


def _error(flavour: str, options: Options) -> float:
    """After some steps of a small one, against float64: of what has moved."""
    (p,) = _parameters({"count": 1, "each": 1000}, options)
    start = p.detach().double()
    wide, first, second = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    step = _step(flavour, [p], options)
    assert p.grad is not None
    gradient = p.grad.double()
    (b1, b2), lr = _OPTIONS["betas"], _OPTIONS["lr"]
    for number in range(1, _STEPS + 1):
        step()
        first = b1 * first + (1 - b1) * gradient
        second = b2 * second + (1 - b2) * gradient**2
        wide = wide * (1 - lr * _DECAY)
        wide -= lr * (first / (1 - b1**number)) / ((second / (1 - b2**number)).sqrt() + 1e-8)
    return difference(p, wide)
