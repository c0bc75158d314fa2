"""AdamW (Loshchilov and Hutter 2019): plain, torch's fused, Triton, apex.

m = b1 m + (1 - b1) g
v = b2 v + (1 - b2) g^2
p = p (1 - lr wd) - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .triton_support import AVAILABLE, BLOCK, grid, tl, triton

_KEPT = 4  # tables of launches, as many as there are kinds of tensors
_TYPES: dict[torch.dtype, Any] = (
    {}
    if AVAILABLE
    else {
        torch.float32: tl.float32,
        torch.bfloat16: tl.bfloat16,
        torch.float16: tl.float16,
    }
)


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
def _step(
    owner,
    places_of,
    numbers,
    gradient_type: tl.constexpr,
    copy_type: tl.constexpr,
    aligned: tl.constexpr,
    block: tl.constexpr,
):
    """All tensors in one launch. `owner`: the tensor of each block; `places_of`: a row of `_PLACES`
    addresses and sizes a tensor; `numbers`: a row of `_NUMBERS` a tensor.
    """
    tensor = tl.load(owner + tl.program_id(0)).to(tl.int64)
    row = places_of + tensor * 7
    count = tl.load(row + 5)
    if aligned:  # addresses and counts by 16: wide loads and stores
        count = tl.multiple_of(count, 16)
    at = (tl.program_id(0) - tl.load(row + 6)) * block + tl.arange(0, block)
    inside = at < count
    n = numbers + tensor * 8
    p = _pointer(row, tl.float32, aligned) + at
    g = _pointer(row + 1, gradient_type, aligned) + at
    m = _pointer(row + 2, tl.float32, aligned) + at
    v = _pointer(row + 3, tl.float32, aligned) + at
    gradient = tl.load(g, mask=inside, other=0.0).to(tl.float32)
    first = tl.load(n) * tl.load(m, mask=inside, other=0.0) + tl.load(n + 1) * gradient
    second = tl.load(n + 2) * tl.load(v, mask=inside, other=0.0)
    second += tl.load(n + 3) * gradient * gradient
    weight = tl.load(p, mask=inside, other=0.0) * tl.load(n + 4)
    weight -= tl.load(n + 5) * first / (tl.sqrt(second) / tl.load(n + 6) + tl.load(n + 7))
    tl.store(m, first, mask=inside)
    tl.store(v, second, mask=inside)
    tl.store(p, weight, mask=inside)
    if copy_type is not None:
        tl.store(_pointer(row + 4, copy_type, aligned) + at, weight, mask=inside)


@triton.jit
def _pointer(place, kind: tl.constexpr, aligned: tl.constexpr):
    pointer = tl.load(place).to(tl.pointer_type(kind))
    if aligned:
        pointer = tl.multiple_of(pointer, 16)
    return pointer


def _numbers(step: int, group: dict[str, Any]) -> tuple[float, ...]:
    """What the kernel takes a tensor, from float64: beta1, 1 - beta1, beta2, 1 - beta2, decay, step
    size, root of beta2's correction, eps.
    """
    (b1, b2), lr = group["betas"], group["lr"]
    size, root = lr / (1 - b1**step), math.sqrt(1 - b2**step)
    return b1, 1 - b1, b2, 1 - b2, 1 - lr * group["weight_decay"], size, root, group["eps"]


@dataclass(frozen=True)
class Update:
    """One tensor of a step: weight, gradient, two moments, where a copy goes; all contiguous."""

    p: torch.Tensor
    g: torch.Tensor
    m: torch.Tensor
    v: torch.Tensor
    copy: torch.Tensor | None
    numbers: tuple[float, ...]

    @property
    def kind(self) -> tuple[torch.device, torch.dtype, torch.dtype | None]:
        """Tensors of one kind share a launch."""
        return self.p.device, self.g.dtype, None if self.copy is None else self.copy.dtype

    @property
    def places(self) -> tuple[int, ...]:
        """Addresses, 0 for no copy, and the number of elements."""
        copy = 0 if self.copy is None else self.copy.data_ptr()
        pointers = (t.data_ptr() for t in (self.p, self.g, self.m, self.v))
        return *pointers, copy, self.p.numel()


class _Tables:
    """Where the tensors of a launch lie, on the device; made anew when one of them has moved."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], tuple[torch.Tensor, torch.Tensor]] = {}

    def of(self, kind: tuple[Any, ...], updates: list[Update]) -> tuple[torch.Tensor, torch.Tensor]:
        """(tensor of each block, rows of places)."""
        key = (*kind, *(u.places for u in updates))
        if key not in self._made:
            if len(self._made) > _KEPT:  # gradients that are made anew each step
                self._made.clear()
            self._made[key] = self._build(updates)
        return self._made[key]

    @staticmethod
    def _build(updates: list[Update]) -> tuple[torch.Tensor, torch.Tensor]:
        blocks = torch.tensor([grid(u.p.numel())[0] for u in updates])
        begins = (blocks.cumsum(0) - blocks).tolist()
        rows = [(*u.places, begin) for u, begin in zip(updates, begins, strict=True)]
        owner = torch.repeat_interleave(torch.arange(len(updates), dtype=torch.int32), blocks)
        device = updates[0].p.device
        return owner.to(device), torch.tensor(rows, dtype=torch.int64).to(device)


def launch(updates: list[Update], tables: _Tables) -> None:
    """Update all tensors, in place: one launch for each kind of them."""
    kinds: dict[tuple[Any, ...], list[Update]] = {}
    for update in updates:
        if update.p.numel():
            kinds.setdefault(update.kind, []).append(update)
    for kind, same in kinds.items():
        owner, rows = tables.of(kind, same)
        numbers = torch.tensor([u.numbers for u in same], dtype=torch.float32)
        _, gradient_type, copy_type = kind
        _step[(len(owner),)](
            owner,
            rows,
            numbers.to(owner.device, non_blocking=True),
            gradient_type=_TYPES[gradient_type],
            copy_type=None if copy_type is None else _TYPES[copy_type],
            aligned=all(number % 16 == 0 for u in same for number in u.places),
            block=BLOCK,
        )


class AdamW(torch.optim.Optimizer):
    """The optimizer around a step of all tensors; its state and its groups have torch's names, so
    checkpoints fit all flavours.
    """

    def __init__(self, groups: Any, step: Callable[..., None] | None, **options: Any) -> None:
        """`step`: of one tensor; None: the kernel, all tensors at once."""
        self._step, self._tables = step, _Tables()
        self._copies: dict[torch.Tensor, torch.Tensor] = {}
        self._copied = False
        ours = torch.optim.AdamW([torch.zeros(1)], fused=True, weight_decay=0.0).defaults
        super().__init__(groups, {**ours, **options})

    @property
    def writes_copies(self) -> bool:
        """Whether `copy_out` works: only the kernel has the new weights at hand."""
        return self._step is None

    def copy_out(self, weight: torch.Tensor, copy: torch.Tensor) -> None:
        """Write `weight`, rounded, into `copy` at each step too: both flat and contiguous."""
        self._copies[weight] = copy

    def has_copied(self) -> bool:
        """Whether the last step wrote all copies; says so once a step."""
        done, self._copied = self._copied, False
        return done

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Update all parameters from their gradients."""
        updates = []
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                m, v, step = self._state_of(p)
                if self._step is not None:
                    self._step(p, p.grad, m, v, step=step, group=group)
                    continue
                numbers, grad = _numbers(step, group), p.grad.contiguous()
                updates.append(Update(p, grad, m, v, self._copies.get(p), numbers))
        launch(updates, self._tables)
        written = sum(u.copy is not None for u in updates)
        self._copied = 0 < len(self._copies) == written

    def _state_of(self, p: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Both moments and the number of this step. It is counted on the CPU: to read it from a GPU
        would wait for all that the GPU still has to do.
        """
        state = self.state[p]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        state["step"] = state["step"].cpu() + 1
        return state["exp_avg"], state["exp_avg_sq"], int(state["step"])


def reference(groups: Any, **options: Any) -> torch.optim.Optimizer:
    """The optimizer in plain torch operations, one parameter at a time."""
    return AdamW(groups, reference_step, **options)


def fused(groups: Any, **options: Any) -> torch.optim.Optimizer:
    """The optimizer with the Triton kernel: one launch for all parameters. Weights and moments:
    float32 and contiguous, as ZeRO's flat partitions are.
    """
    return AdamW(groups, None, **options)


def torch_fused(groups: Any, **options: Any) -> torch.optim.Optimizer:
    """DeepSpeed's own fused Adams compile for a minute; this one is there and as fast."""
    return torch.optim.AdamW(groups, fused=True, **options)


def apex(groups: Any, **options: Any) -> torch.optim.Optimizer:
    """NVIDIA apex's FusedAdam with decoupled weight decay; raises ImportError without apex."""
    from apex.optimizers import FusedAdam

    return FusedAdam(groups, adam_w_mode=True, **options)
