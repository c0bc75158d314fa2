"""Causal softmax of scaled attention scores."""

from __future__ import annotations

import torch


def reference(scores: torch.Tensor, scale: float) -> torch.Tensor:
    """scores: [b, heads, q, k]; a query sees keys up to its own place, counted from the end. Softmax in float32."""
    q, k = scores.shape[-2:]
    hidden = torch.ones(q, k, dtype=torch.bool, device=scores.device).triu(1 + k - q)
    wide = scores if scores.dtype == torch.float64 else scores.float()
    return (wide * scale).masked_fill(hidden, float("-inf")).softmax(-1).to(scores.dtype)


torch_fused = reference
