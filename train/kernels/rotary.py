"""Rotary position embedding (Su et al. 2021): pairs (i, i + d/2) of a head turn by an angle.

Sequences first, as everywhere in the model: x is [seq, batch, heads, d], the tables are
[seq, batch or 1, 1, d / 2] in float32. The gradient turns back by the same angle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .triton_support import next_power_of_two, tl, triton, tuned

Turned = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
CANDIDATES = (({"rows": 16}, 4), ({"rows": 32}, 4), ({"rows": 32}, 8), ({"rows": 8}, 2))


def reference(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x: [seq, batch, heads, d] -> the same, turned; arithmetic in float32 or wider.

    cos, sin: [seq, batch or 1, 1, d / 2].
    """
    wide = x if x.dtype == torch.float64 else x.float()
    first, second = wide.chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.to(x.dtype)


def reference_qkv(qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Turned:
    """qkv: [seq, batch, heads, 3, d] -> query and key turned, value as it is: [seq, batch, heads, d]
    each. `qkv` is given up: a flavour may turn it in place.
    """
    q, k, v = qkv.unbind(dim=3)
    return reference(q, cos, sin), reference(k, cos, sin), v


@tuned(CANDIDATES, key=["heads", "parts", "half"], in_place=["out"])
@triton.jit
def _turn(
    x,
    out,
    cos,
    sin,
    batch,
    x_seq,
    x_batch,
    x_head,
    x_part,
    out_seq,
    out_batch,
    out_head,
    out_part,
    table_seq,
    table_batch,
    heads,
    sign,
    parts: tl.constexpr,
    half: tl.constexpr,
    rows: tl.constexpr,
    width: tl.constexpr,
):
    """A program turns all heads of one token; of `parts` tensors that lie side by side, query and
    key. `out` may be `x`: a pair is read and written by one thread.
    """
    token = tl.program_id(0).to(tl.int64)
    seq, member = token // batch, token % batch
    i = tl.arange(0, width)
    place = seq * table_seq + member * table_batch + i
    c = tl.load(cos + place, mask=i < half, other=0.0)[None, :]
    s = sign * tl.load(sin + place, mask=i < half, other=0.0)[None, :]
    x += seq * x_seq + member * x_batch
    out += seq * out_seq + member * out_batch
    for first_row in range(0, heads * parts, rows):
        row = first_row + tl.arange(0, rows)
        inside = (row < heads * parts)[:, None] & (i < half)[None, :]
        head, part = row // parts, row % parts
        source = x + (head * x_head + part * x_part)[:, None] + i[None, :]
        goal = out + (head * out_head + part * out_part)[:, None] + i[None, :]
        first = tl.load(source, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(source + half, mask=inside, other=0.0).to(tl.float32)
        tl.store(goal, first * c - second * s, mask=inside)
        tl.store(goal + half, second * c + first * s, mask=inside)


def _turned(
    x: torch.Tensor, out: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, sign: float
) -> None:
    """x, out: [seq, batch, heads, parts, d], the last dimension without gaps."""
    s, b, heads, parts, d = x.shape
    half = d // 2
    _turn[(s * b,)](
        x,
        out,
        cos,
        sin,
        batch=b,
        x_seq=x.stride(0),
        x_batch=x.stride(1),
        x_head=x.stride(2),
        x_part=x.stride(3),
        out_seq=out.stride(0),
        out_batch=out.stride(1),
        out_head=out.stride(2),
        out_part=out.stride(3),
        table_seq=cos.stride(0),
        table_batch=cos.stride(1) if cos.shape[1] > 1 else 0,
        heads=heads,
        sign=sign,
        parts=parts,
        half=half,
        width=next_power_of_two(half),
    )


@tuned(CANDIDATES, key=["heads", "half"])
@triton.jit
def _turn_back(
    q,
    k,
    v,
    out,
    cos,
    sin,
    batch,
    q_seq,
    q_batch,
    q_head,
    k_seq,
    k_batch,
    k_head,
    v_seq,
    v_batch,
    v_head,
    table_seq,
    table_batch,
    heads,
    half: tl.constexpr,
    rows: tl.constexpr,
    width: tl.constexpr,
):
    """A program puts together the gradient of one token's projection, [heads, 3, d] without gaps: those of
    query and key turned back, that of the value as it is.
    """
    token = tl.program_id(0).to(tl.int64)
    seq, member = token // batch, token % batch
    i = tl.arange(0, width)
    place = seq * table_seq + member * table_batch + i
    c = tl.load(cos + place, mask=i < half, other=0.0)[None, :]
    s = -tl.load(sin + place, mask=i < half, other=0.0)[None, :]
    q += seq * q_seq + member * q_batch
    k += seq * k_seq + member * k_batch
    v += seq * v_seq + member * v_batch
    out += token * heads * 6 * half
    for first_head in range(0, heads, rows):
        head = first_head + tl.arange(0, rows)
        inside = (head < heads)[:, None] & (i < half)[None, :]
        goal = out + (head * 6 * half)[:, None] + i[None, :]
        source = q + (head * q_head)[:, None] + i[None, :]
        first = tl.load(source, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(source + half, mask=inside, other=0.0).to(tl.float32)
        tl.store(goal, first * c - second * s, mask=inside)
        tl.store(goal + half, second * c + first * s, mask=inside)
        source = k + (head * k_head)[:, None] + i[None, :]
        first = tl.load(source, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(source + half, mask=inside, other=0.0).to(tl.float32)
        tl.store(goal + 2 * half, first * c - second * s, mask=inside)
        tl.store(goal + 3 * half, second * c + first * s, mask=inside)
        source = v + (head * v_head)[:, None] + i[None, :]
        tl.store(goal + 4 * half, tl.load(source, mask=inside, other=0.0), mask=inside)
        tl.store(goal + 5 * half, tl.load(source + half, mask=inside, other=0.0), mask=inside)


def _turned_back(
    grads: Sequence[torch.Tensor], out: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> None:
    """grads: three of [seq, batch, heads, d], the last dimension without gaps; out: [seq, batch, heads, 3, d]."""
    q, k, v = grads
    s, b, heads, d = q.shape
    half = d // 2
    _turn_back[(s * b,)](
        q,
        k,
        v,
        out,
        cos,
        sin,
        batch=b,
        q_seq=q.stride(0),
        q_batch=q.stride(1),
        q_head=q.stride(2),
        k_seq=k.stride(0),
        k_batch=k.stride(1),
        k_head=k.stride(2),
        v_seq=v.stride(0),
        v_batch=v.stride(1),
        v_head=v.stride(2),
        table_seq=cos.stride(0),
        table_batch=cos.stride(1) if cos.shape[1] > 1 else 0,
        heads=heads,
        half=half,
        width=next_power_of_two(half),
    )


def _without_gaps(x: torch.Tensor) -> torch.Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


class _Rotary(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x, cos, sin = _without_gaps(x), cos.contiguous(), sin.contiguous()
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        _turned(x.unsqueeze(3), out.unsqueeze(3), cos, sin, 1.0)
        ctx.save_for_backward(cos, sin)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        grad = _without_gaps(grad)
        out = torch.empty(grad.shape, dtype=grad.dtype, device=grad.device)
        _turned(grad.unsqueeze(3), out.unsqueeze(3), *ctx.saved_tensors, -1.0)
        return out, None, None


class _RotaryQkv(torch.autograd.Function):
    """Turns q and k where the projection has written them; the gradient is put together in the
    projection's layout by the same pass that turns it back.
    """

    @staticmethod
    def forward(ctx: Any, qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Turned:
        keeps = torch.compiler.is_compiling() or qkv.stride(-1) != 1
        keeps = keeps or (qkv.is_leaf and qkv.requires_grad)
        cos, sin = cos.contiguous(), sin.contiguous()
        out = qkv.detach().clone(memory_format=torch.contiguous_format) if keeps else qkv.detach()
        _turned(out[:, :, :, :2], out[:, :, :, :2], cos, sin, 1.0)
        if not keeps:  # who has kept the projection's output for a gradient is refused, not wrong
            torch.autograd.graph.increment_version(qkv)
        ctx.save_for_backward(cos, sin)
        return out[:, :, :, 0], out[:, :, :, 1], out[:, :, :, 2]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        s, b, heads, d = grads[0].shape
        out = torch.empty(s, b, heads, 3, d, dtype=grads[0].dtype, device=grads[0].device)
        _turned_back([_without_gaps(grad) for grad in grads], out, cos, sin)
        return out, None, None


def fused(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Triton: one read and one write, forward and backward."""
    return _Rotary.apply(x, cos, sin)


def fused_qkv(qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Turned:
    """Triton: query and key in one launch, in the memory of `qkv`."""
    return _RotaryQkv.apply(qkv, cos, sin)
