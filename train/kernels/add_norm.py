"""The residual addition and the normalization behind it.

sum = residual + x (+ x_bias), in the residual's dtype; normed = norm(sum), in the weight's dtype: so
an fp32 residual stream stays one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .norm import (
    WIDEST,
    centred_row,
    input_gradient,
    layer_norm_reference,
    layer_norm_torch,
    programs_for,
    rms_norm_reference,
    rms_norm_torch,
    scaled_row,
)
from .triton_support import next_power_of_two, tl, triton, warps

Pair = tuple[torch.Tensor, torch.Tensor]


def _added(x: torch.Tensor, residual: torch.Tensor, x_bias: torch.Tensor | None) -> torch.Tensor:
    return residual + (x if x_bias is None else x + x_bias)


def _as(dtype: torch.dtype, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(w.to(dtype) for w in weights)


def _layer_norm_add(norm: Callable[..., torch.Tensor]) -> Callable[..., Pair]:
    def layer_norm_add(
        x: torch.Tensor,
        residual: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        eps: float,
        *,
        x_bias: torch.Tensor | None = None,
    ) -> Pair:
        """x, residual: [..., h]; weight, bias, x_bias: [h] -> (sum, normed)."""
        total = _added(x, residual, x_bias)
        normed = norm(total, *_as(total.dtype, weight, bias), eps)
        return total, normed.to(weight.dtype)

    return layer_norm_add


def _rms_norm_add(norm: Callable[..., torch.Tensor]) -> Callable[..., Pair]:
    def rms_norm_add(
        x: torch.Tensor,
        residual: torch.Tensor,
        weight: torch.Tensor,
        eps: float,
        *,
        x_bias: torch.Tensor | None = None,
    ) -> Pair:
        """x, residual: [..., h]; weight, x_bias: [h] -> (sum, normed)."""
        total = _added(x, residual, x_bias)
        normed = norm(total, weight.to(total.dtype), eps)
        return total, normed.to(weight.dtype)

    return rms_norm_add


layer_norm_add_reference = _layer_norm_add(layer_norm_reference)
rms_norm_add_reference = _rms_norm_add(rms_norm_reference)
layer_norm_add_torch = _layer_norm_add(layer_norm_torch)
rms_norm_add_torch = _rms_norm_add(rms_norm_torch)


@triton.jit
def _forward(
    x,
    x_bias,
    residual,
    weight,
    bias,
    total,
    normed,
    mean,
    rstd,
    h,
    eps,
    biased: tl.constexpr,
    centred: tl.constexpr,
    block: tl.constexpr,
):
    """The sum is rounded to its own type before it is normalized, as two steps would."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, block)
    inside = at < h
    v = tl.load(x + row * h + at, mask=inside, other=0.0).to(tl.float32)
    if biased:
        v += tl.load(x_bias + at, mask=inside, other=0.0).to(tl.float32)
    v += tl.load(residual + row * h + at, mask=inside, other=0.0).to(tl.float32)
    rounded = v.to(total.dtype.element_ty)
    tl.store(total + row * h + at, rounded, mask=inside)
    v = rounded.to(tl.float32)
    if centred:
        v = centred_row(v, mean + row, inside, h)
    y = scaled_row(v, rstd + row, weight + at, inside, h=h, eps=eps)
    if centred:
        y += tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + row * h + at, y, mask=inside)


@triton.jit
def _backward(
    grad_total,
    grad,
    total,
    weight,
    mean,
    rstd,
    dx,
    dresidual,
    sums,
    rows,
    h,
    splits: tl.constexpr,
    biased: tl.constexpr,
    centred: tl.constexpr,
    block: tl.constexpr,
):
    """Each program walks rows and keeps its own sums of the gradients of weight, bias and x_bias.
    `splits`: x and residual differ in type and get a gradient each.
    """
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    at = tl.arange(0, block)
    inside = at < h
    w = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    sum_w = tl.zeros((block,), dtype=tl.float32)
    sum_b = tl.zeros((block,), dtype=tl.float32)
    sum_x = tl.zeros((block,), dtype=tl.float32)
    for row in range(program, rows, programs):
        g = tl.load(grad + row * h + at, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(total + row * h + at, mask=inside, other=0.0).to(tl.float32)
        if centred:
            v = v - tl.load(mean + row)
        scale = tl.load(rstd + row)
        unit = tl.where(inside, v * scale, 0.0)
        d = input_gradient(g * w, unit, scale, h, centred=centred)
        d += tl.load(grad_total + row * h + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(dresidual + row * h + at, d, mask=inside)
        if splits:
            tl.store(dx + row * h + at, d, mask=inside)
        sum_w += g * unit
        sum_b += g
        sum_x += tl.where(inside, d, 0.0)
    tl.store(sums + program * h + at, sum_w, mask=inside)
    if centred:
        tl.store(sums + (programs + program) * h + at, sum_b, mask=inside)
    if biased:
        tl.store(sums + (2 * programs + program) * h + at, sum_x, mask=inside)


class _AddNorm(torch.autograd.Function):
    """`bias`: none for RMSNorm."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        x_bias: torch.Tensor | None,
        residual: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        eps: float,
    ) -> Pair:
        x, residual, h = x.contiguous(), residual.contiguous(), x.shape[-1]
        rows, block = x.numel() // h, next_power_of_two(h)
        total = torch.empty_like(residual)
        normed = torch.empty(x.shape, dtype=weight.dtype, device=x.device)
        mean, rstd = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
        _forward[(rows,)](
            x,
            weight if x_bias is None else x_bias,
            residual,
            weight,
            bias=weight if bias is None else bias,
            total=total,
            normed=normed,
            mean=mean,
            rstd=rstd,
            h=h,
            eps=eps,
            biased=x_bias is not None,
            centred=bias is not None,
            block=block,
            num_warps=warps(block),
        )
        ctx.save_for_backward(total, weight, mean, rstd)
        ctx.types = x.dtype, None if x_bias is None else x_bias.dtype
        ctx.centred = bias is not None
        return total, normed

    @staticmethod
    def backward(
        ctx: Any, grad_total: torch.Tensor, grad: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        total, weight, mean, rstd = ctx.saved_tensors
        x_type, bias_type = ctx.types
        h = total.shape[-1]
        rows, block = total.numel() // h, next_power_of_two(h)
        programs, splits = programs_for(rows, h), x_type != total.dtype
        dresidual = torch.empty_like(total)
        dx = torch.empty(total.shape, dtype=x_type, device=total.device) if splits else dresidual
        sums = torch.empty(3, programs, h, dtype=torch.float32, device=total.device)
        _backward[(programs,)](
            grad_total.contiguous(),
            grad.contiguous(),
            total,
            weight,
            mean=mean,
            rstd=rstd,
            dx=dx,
            dresidual=dresidual,
            sums=sums,
            rows=rows,
            h=h,
            splits=splits,
            biased=bias_type is not None,
            centred=ctx.centred,
            block=block,
            num_warps=warps(block),
        )
        of_bias = sums[1].sum(0).to(weight.dtype) if ctx.centred else None
        of_x_bias = None if bias_type is None else sums[2].sum(0).to(bias_type)
        return dx, of_x_bias, dresidual, sums[0].sum(0).to(weight.dtype), of_bias, None


def layer_norm_add_fused(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
    *,
    x_bias: torch.Tensor | None = None,
) -> Pair:
    """Triton: x and residual read once, both results written once; rows wider than WIDEST by torch."""
    if x.shape[-1] > WIDEST:
        return layer_norm_add_torch(x, residual, weight, bias, eps, x_bias=x_bias)
    return _AddNorm.apply(x, x_bias, residual, weight, bias, eps)


def rms_norm_add_fused(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    x_bias: torch.Tensor | None = None,
) -> Pair:
    """The same for RMSNorm."""
    if x.shape[-1] > WIDEST:
        return rms_norm_add_torch(x, residual, weight, eps, x_bias=x_bias)
    return _AddNorm.apply(x, x_bias, residual, weight, None, eps)
