"""Kernels in Triton's interpreter against references in float64: values and gradients."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

# The interpreter is chosen when a kernel is defined: a test file runs itself again with this set.
INSIDE = os.environ.get("TRITON_INTERPRET") == "1"
TOLERANCE = {
    torch.float32: {"rtol": 2e-5, "atol": 2e-6},
    torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2},
}


def run_in_the_interpreter(file: str) -> None:
    """Run a test file in a process whose kernels are interpreted."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]


def pair(
    *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same numbers in `dtype` and in float64, both wanting gradients."""
    narrow = (torch.randn(*shape) * scale).to(dtype)
    return narrow.requires_grad_(), narrow.detach().double().requires_grad_()


def _as_list(made: Any) -> list[torch.Tensor]:
    return [made] if isinstance(made, torch.Tensor) else list(made)


def close(got: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    """Near in the measure of `dtype`: of the largest number, for what is a sum of many."""
    limit = dict(TOLERANCE[dtype])
    limit["atol"] *= max(1.0, float(wanted.detach().abs().max()) if wanted.numel() else 1.0)
    torch.testing.assert_close(got.double(), wanted.double(), **limit)


def same(
    fused: Callable[..., Any],
    reference: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    wide: Sequence[torch.Tensor],
) -> None:
    """Values and gradients of `fused` are those of `reference` on float64."""
    dtype = min((t.dtype for t in inputs), key=lambda kind: kind.itemsize)
    results, expected = _as_list(fused(*inputs)), _as_list(reference(*wide))
    weights = [torch.randn(y.shape) for y in expected]
    for got, want in zip(results, expected, strict=True):
        close(got, want, dtype)
    sum((y.float() * w).sum() for y, w in zip(results, weights, strict=True)).backward()
    sum((y * w.double()).sum() for y, w in zip(expected, weights, strict=True)).backward()
    for got, want in zip(inputs, wide, strict=True):
        close(got.grad, want.grad, dtype)
