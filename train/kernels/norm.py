"""LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019) over the last dimension,
statistics in float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from .triton_support import next_power_of_two, tl, triton, warps

WIDEST = 65536 // 2  # elements a row that one program holds
# Programs of the backward pass: each keeps a partial sum of the weight's gradient. Measured on an H200:
# 1,024 for rows of 2,048 elements (0.055 ms at 8,192 rows; 256: 0.063), 128 for 8,192 (0.090; 256: 0.100).
FEWEST, MOST = 128, 1024
_WIDE = 2048  # elements of a row: beyond, a processor holds one program at a time


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype == torch.float64 else x.float()


def layer_norm_reference(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    """x: [..., h]; weight, bias: [h]."""
    v = _wide(x)
    centred = v - v.mean(-1, keepdim=True)
    scaled = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    return (scaled * _wide(weight) + _wide(bias)).to(x.dtype)


def rms_norm_reference(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x: [..., h]; weight: [h]."""
    v = _wide(x)
    return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps) * _wide(weight)).to(x.dtype)


def layer_norm_torch(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    """Layer norm over the last dimension by torch's own operation; shape of `x`."""
    return F.layer_norm(x, (x.shape[-1],), weight, bias, eps)


def rms_norm_torch(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMS norm over the last dimension by torch's own operation; shape of `x`."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def programs_for(rows: int, h: int) -> int:
    """Of the backward pass, for `rows` rows of `h` elements: by the sizes alone, so that every run and
    every rank adds up in the same order.
    """
    return min(rows, MOST if h <= _WIDE else max(FEWEST, (1 << 20) // h))


@triton.jit
def centred_row(v, mean, inside, h):
    """A row without its mean, which is kept for the backward pass; 0 outside of the row."""
    middle = tl.sum(v, axis=0) / h
    tl.store(mean, middle)
    return tl.where(inside, v - middle, 0.0)


@triton.jit
def scaled_row(v, rstd, weight, inside, h, eps):
    """A row by its root mean square, which is kept for the backward pass, times the weight."""
    scale = 1.0 / tl.sqrt(tl.sum(v * v, axis=0) / h + eps)
    tl.store(rstd, scale)
    return v * scale * tl.load(weight, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def input_gradient(gw, unit, scale, h, centred: tl.constexpr):
    """Of a row's input. `gw`: gradient times weight; `unit`: the row before its weight; `scale`: one
    over its deviation.
    """
    correction = unit * (tl.sum(gw * unit, axis=0) / h)
    if centred:
        correction += tl.sum(gw, axis=0) / h
    return (gw - correction) * scale


@triton.jit
def _forward(x, weight, bias, out, mean, rstd, h, eps, centred: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, block)
    inside = at < h
    v = tl.load(x + row * h + at, mask=inside, other=0.0).to(tl.float32)
    if centred:
        v = centred_row(v, mean + row, inside, h)
    y = scaled_row(v, rstd + row, weight + at, inside, h=h, eps=eps)
    if centred:
        y += tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * h + at, y, mask=inside)


@triton.jit
def _backward(
    grad,
    x,
    weight,
    mean,
    rstd,
    dx,
    dweight,
    dbias,
    rows,
    h,
    stride,
    centred: tl.constexpr,
    block: tl.constexpr,
):
    """Each program walks every `stride`-th row and keeps its own sum of the weight's and the bias'
    gradient.
    """
    program = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, block)
    inside = at < h
    w = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    sum_w = tl.zeros((block,), dtype=tl.float32)
    sum_b = tl.zeros((block,), dtype=tl.float32)
    for row in range(program, rows, stride):
        g = tl.load(grad + row * h + at, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(x + row * h + at, mask=inside, other=0.0).to(tl.float32)
        if centred:
            v = v - tl.load(mean + row)
        scale = tl.load(rstd + row)
        unit = tl.where(inside, v * scale, 0.0)
        d = input_gradient(g * w, unit, scale, h, centred=centred)
        tl.store(dx + row * h + at, d, mask=inside)
        sum_w += g * unit
        sum_b += g
    tl.store(dweight + program * h + at, sum_w, mask=inside)
    if centred:
        tl.store(dbias + program * h + at, sum_b, mask=inside)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float
    ) -> torch.Tensor:
        x, h = x.contiguous(), x.shape[-1]
        rows, block = x.numel() // h, next_power_of_two(h)
        out = torch.empty_like(x)
        mean, rstd = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
        _forward[(rows,)](
            x,
            weight,
            weight if bias is None else bias,
            out,
            mean=mean,
            rstd=rstd,
            h=h,
            eps=eps,
            centred=bias is not None,
            block=block,
            num_warps=warps(block),
        )
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.centred = bias is not None
        return out

    @staticmethod
    def backward(
        ctx: Any, grad: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, None]:
        x, weight, mean, rstd = ctx.saved_tensors
        h = x.shape[-1]
        rows, block = x.numel() // h, next_power_of_two(h)
        programs = programs_for(rows, h)
        dx = torch.empty_like(x)
        dweight, dbias = (
            torch.empty(programs, h, dtype=torch.float32, device=x.device) for _ in range(2)
        )
        _backward[(programs,)](
            grad.contiguous(),
            x,
            weight,
            mean,
            rstd=rstd,
            dx=dx,
            dweight=dweight,
            dbias=dbias,
            rows=rows,
            h=h,
            stride=programs,
            centred=ctx.centred,
            block=block,
            num_warps=warps(block),
        )
        total_b = dbias.sum(0).to(weight.dtype) if ctx.centred else None
        return dx, dweight.sum(0).to(weight.dtype), total_b, None


def layer_norm_fused(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    """Triton; rows wider than WIDEST by torch."""
    return (
        layer_norm_torch(x, weight, bias, eps)
        if x.shape[-1] > WIDEST
        else _Norm.apply(x, weight, bias, eps)
    )


def rms_norm_fused(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Triton; rows wider than WIDEST by torch."""
    return (
        rms_norm_torch(x, weight, eps)
        if x.shape[-1] > WIDEST
        else _Norm.apply(x, weight, None, eps)
    )


def layer_norm_apex(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    """Layer norm over the last dimension by NVIDIA apex; raises ImportError without it."""
    from apex.normalization.fused_layer_norm import fused_layer_norm_affine

    return fused_layer_norm_affine(x, weight, bias, (x.shape[-1],), eps)


def rms_norm_apex(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMS norm over the last dimension by NVIDIA apex; raises ImportError without it."""
    from apex.normalization.fused_layer_norm import fused_rms_norm_affine

    return fused_rms_norm_affine(x, weight, (x.shape[-1],), eps)
