"""AdamW (Loshchilov and Hutter 2019): plain, torch's fused, Triton, apex.

m = b1 m + (1 - b1) g
v = b2 v + (1 - b2) g^2
p = p (1 - lr wd) - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .triton_support import BLOCK, grid, places, tl, triton


def reference_step(
    p: torch.Tensor,
    g: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
    step: int,
    group: dict[str, Any],
) -> None:
    """One step, in place on p, m and v."""
    (b1, b2), lr = group["betas"], group["lr"]
    p.mul_(1 - lr * group["weight_decay"])
    m.mul_(b1).add_(g, alpha=1 - b1)
    v.mul_(b2).addcmul_(g, g, value=1 - b2)
    p.sub_(lr * (m / (1 - b1**step)) / ((v / (1 - b2**step)).sqrt() + group["eps"]))


@triton.jit
def _step(p, g, m, v, n, lr, b1, b2, eps, decay, correction1, correction2, block: tl.constexpr):
    at = places(block)
    inside = at < n
    gradient = tl.load(g + at, mask=inside, other=0.0).to(tl.float32)
    first = b1 * tl.load(m + at, mask=inside, other=0.0) + (1.0 - b1) * gradient
    second = b2 * tl.load(v + at, mask=inside, other=0.0) + (1.0 - b2) * gradient * gradient
    weight = tl.load(p + at, mask=inside, other=0.0) * (1.0 - lr * decay)
    weight -= lr * (first / correction1) / (tl.sqrt(second / correction2) + eps)
    tl.store(m + at, first, mask=inside)
    tl.store(v + at, second, mask=inside)
    tl.store(p + at, weight, mask=inside)


def fused_step(
    p: torch.Tensor,
    g: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
    step: int,
    group: dict[str, Any],
) -> None:
    """The same in one pass, by Triton. p, m, v: float32 and contiguous, as ZeRO's flat partitions
    are.
    """
    (b1, b2), n = group["betas"], p.numel()
    _step[grid(n)](
        p,
        g.contiguous(),
        m,
        v,
        n=n,
        lr=group["lr"],
        b1=b1,
        b2=b2,
        eps=group["eps"],
        decay=group["weight_decay"],
        correction1=1 - b1**step,
        correction2=1 - b2**step,
        block=BLOCK,
    )


class AdamW(torch.optim.Optimizer):
    """The optimizer around a step function; its state has torch's names, so checkpoints fit all of
    them.
    """

    def __init__(self, groups: Any, step: Callable[..., None], **options: Any) -> None:
        self._step = step
        super().__init__(groups, {"weight_decay": 0.0, **options})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Update all parameters from their gradients."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = torch.tensor(0.0)
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
                state["step"] += 1
                moments = state["exp_avg"], state["exp_avg_sq"]
                self._step(p, p.grad, *moments, step=int(state["step"]), group=group)


def reference(groups: Any, **options: Any) -> torch.optim.Optimizer:
    """The optimizer in plain torch operations, one parameter at a time."""
    return AdamW(groups, reference_step, **options)


def fused(groups: Any, **options: Any) -> torch.optim.Optimizer:
    """The optimizer with the Triton kernel: one launch a parameter."""
    return AdamW(groups, fused_step, **options)


def torch_fused(groups: Any, **options: Any) -> torch.optim.Optimizer:
    """DeepSpeed's own fused Adams compile for a minute; this one is there and as fast."""
    return torch.optim.AdamW(groups, fused=True, **options)


def apex(groups: Any, **options: Any) -> torch.optim.Optimizer:
    """NVIDIA apex's FusedAdam with decoupled weight decay; raises ImportError without apex."""
    from apex.optimizers import FusedAdam

    return FusedAdam(groups, adam_w_mode=True, **options)
