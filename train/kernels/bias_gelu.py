"""GELU of x + bias, tanh form.

gelu(v) = v/2 (1 + tanh(sqrt(2/pi) (v + 0.044715 v^3)))  (Hendrycks and Gimpel 2016, section 2)
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


def reference(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """x: [..., h], bias: [h]."""
    v = x + bias
    return 0.5 * v * (1.0 + torch.tanh(SQRT_2_OVER_PI * (v + 0.044715 * v * v * v)))


def torch_fused(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.gelu(x + bias, approximate="tanh")
