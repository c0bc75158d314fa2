"""What each kernel is measured on: arguments, and the bytes and operations that it cannot avoid.

`INPUTS` has an entry for each kernel of the trainer's registry: a test holds that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from hangdoctor.train.topology import TensorGroup

Sizes = dict[str, int]


@dataclass(frozen=True)
class Traffic:
    """Each input read once, each output written once; operations where a product is in it."""

    forward_bytes: int
    backward_bytes: int
    forward_flops: float = 0.0
    backward_flops: float = 0.0


@dataclass(frozen=True)
class Made:
    """One call. `gives_up`: arguments whose memory the kernel may take, so that each call gets its
    own copy.
    """

    arguments: tuple[Any, ...]
    traffic: Traffic
    keywords: dict[str, Any] = field(default_factory=dict)
    gives_up: tuple[int, ...] = ()


@dataclass(frozen=True)
class Maker:
    """Random tensors on the device; never zeros, which hide errors and are faster."""

    device: str
    dtype: torch.dtype

    def normal(self, *shape: int, grad: bool = True) -> torch.Tensor:
        """Of the standard normal distribution."""
        made = torch.randn(*shape, device=self.device, dtype=self.dtype)
        return made.requires_grad_(grad)

    def targets(self, count: int, vocab: int) -> torch.Tensor:
        """Token ids."""
        return torch.randint(vocab, (count,), device=self.device)

    def angles(self, length: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotary tables [length, 1, 1, width / 2] in float32."""
        at = torch.arange(length, device=self.device, dtype=torch.float32)
        power = torch.arange(width // 2, device=self.device, dtype=torch.float32) / (width // 2)
        angle = torch.outer(at, 10000.0**-power)[:, None, None, :]
        return angle.cos(), angle.sin()


def _bytes(*tensors: torch.Tensor) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _bias_gelu(make: Maker, size: Sizes) -> Made:
    x, bias = make.normal(size["tokens"], 4 * size["hidden"]), make.normal(4 * size["hidden"])
    return Made((x, bias), Traffic(2 * _bytes(x), 3 * _bytes(x)))


def _bias_dropout_add(make: Maker, size: Sizes) -> Made:
    x, residual = (make.normal(size["tokens"], size["hidden"]) for _ in range(2))
    bias = make.normal(size["hidden"])
    # The gradient of the residual is the one that comes in: only the branch is read and written.
    return Made((x, bias, residual, 0.1, True), Traffic(3 * _bytes(x), 2 * _bytes(x)))


def _softmax(make: Maker, size: Sizes) -> Made:
    length = size["length"]
    scores = make.normal(1, size["heads"], length, length)
    return Made((scores, 0.125), Traffic(2 * _bytes(scores), 3 * _bytes(scores)))


def _norm(make: Maker, size: Sizes, centred: bool) -> Made:
    x, weight = make.normal(size["tokens"], size["hidden"]), make.normal(size["hidden"])
    bias = (make.normal(size["hidden"]),) if centred else ()
    return Made((x, weight, *bias, 1e-5), Traffic(2 * _bytes(x), 3 * _bytes(x)))


def _add_norm(make: Maker, size: Sizes, centred: bool) -> Made:
    x, residual = (make.normal(size["tokens"], size["hidden"]) for _ in range(2))
    weight = make.normal(size["hidden"])
    bias = (make.normal(size["hidden"]),) if centred else ()
    return Made((x, residual, weight, *bias, 1e-5), Traffic(4 * _bytes(x), 4 * _bytes(x)))


def _cross_entropy(make: Maker, size: Sizes) -> Made:
    logits = make.normal(size["tokens"], size["vocab"])
    target = make.targets(size["tokens"], size["vocab"])
    traffic = Traffic(_bytes(logits), 2 * _bytes(logits))
    return Made((logits, target, TensorGroup()), traffic, gives_up=(0,))


def _linear_cross_entropy(make: Maker, size: Sizes) -> Made:
    hidden = make.normal(size["tokens"], size["hidden"])
    # Scaled, or the softmax of the logits is one token and its gradient nothing.
    weight = (make.normal(size["vocab"], size["hidden"], grad=False) * 0.02).requires_grad_()
    target = make.targets(size["tokens"], size["vocab"])
    product = 2.0 * size["tokens"] * size["hidden"] * size["vocab"]
    read = _bytes(hidden, weight)
    traffic = Traffic(read, 2 * read, product, 2 * product)
    return Made((hidden, weight, target, TensorGroup()), traffic)


def _rotary(make: Maker, size: Sizes) -> Made:
    x = make.normal(size["length"], size["batch"], size["heads"], size["width"])
    tables = make.angles(size["length"], size["width"])
    return Made((x, *tables), Traffic(2 * _bytes(x), 2 * _bytes(x)), gives_up=(0,))


def _rotary_qkv(make: Maker, size: Sizes) -> Made:
    qkv = make.normal(size["length"], size["batch"], size["heads"], 3, size["width"])
    tables = make.angles(size["length"], size["width"])
    # Forward the values stay where they are: two thirds are read and written. Backward the gradients of
    # all three are put together.
    moved = 2 * (2 * _bytes(qkv) // 3)
    return Made((qkv, *tables), Traffic(moved, 2 * _bytes(qkv)), gives_up=(0,))


def _attention(make: Maker, size: Sizes) -> Made:
    shape = (size["batch"], size["heads"], size["length"], size["width"])
    q, k, v = (make.normal(*shape) for _ in range(3))
    # Two products forward, five backward; a causal mask leaves half of each.
    product = size["batch"] * size["heads"] * size["length"] ** 2 * size["width"] * 2 / 2.0
    traffic = Traffic(_bytes(q, k, v, q), 2 * _bytes(q, k, v, q), 2 * product, 5 * product)
    return Made((q, k, v), traffic)


# kernel -> its arguments. Adam has no gradient of its own and is measured in `adam_rows`.
INPUTS: dict[str, Callable[[Maker, Sizes], Made]] = {
    "cross_entropy": _cross_entropy,
    "linear_cross_entropy": _linear_cross_entropy,
    "rotary": _rotary,
    "rotary_qkv": _rotary_qkv,
    "add_layer_norm": lambda make, size: _add_norm(make, size, True),
    "add_rms_norm": lambda make, size: _add_norm(make, size, False),
    "bias_gelu": _bias_gelu,
    "bias_dropout_add": _bias_dropout_add,
    "layer_norm": lambda make, size: _norm(make, size, True),
    "rms_norm": lambda make, size: _norm(make, size, False),
    "softmax": _softmax,
    "attention": _attention,
}
_ROWS = {
    "8192x2048": {"tokens": 8192, "hidden": 2048},
    "4096x8192": {"tokens": 4096, "hidden": 8192},
}
_HEADS = {
    "2048x4x16x128": {"length": 2048, "batch": 4, "heads": 16, "width": 128},
    "8192x1x32x128": {"length": 8192, "batch": 1, "heads": 32, "width": 128},
}
# kernel -> size -> dimensions. The first size is the 1.3B model's.
SIZES: dict[str, dict[str, Sizes]] = {
    **dict.fromkeys(
        ("add_layer_norm", "add_rms_norm", "layer_norm", "rms_norm", "bias_dropout_add"), _ROWS
    ),
    "bias_gelu": {
        "8192x8192": {"tokens": 8192, "hidden": 2048},
        "4096x32768": {"tokens": 4096, "hidden": 8192},
    },
    "cross_entropy": {
        "8192x50304": {"tokens": 8192, "vocab": 50304},
        "4096x128256": {"tokens": 4096, "vocab": 128256},
    },
    "linear_cross_entropy": {
        "8192x2048x50304": {"tokens": 8192, "hidden": 2048, "vocab": 50304},
        "4096x4096x128256": {"tokens": 4096, "hidden": 4096, "vocab": 128256},
    },
    "rotary": _HEADS,
    "rotary_qkv": _HEADS,
    "softmax": {
        "16x2048x2048": {"heads": 16, "length": 2048},
        "2x8192x8192": {"heads": 2, "length": 8192},
    },
    "attention": {
        "2k": {"batch": 4, "heads": 16, "length": 2048, "width": 128},
        "8k": {"batch": 1, "heads": 16, "length": 8192, "width": 128},
        "32k": {"batch": 1, "heads": 16, "length": 32768, "width": 128},
    },
    "adam": {
        "160M_in_1": {"count": 1, "each": 160_000_000},
        "160M_in_100": {"count": 100, "each": 1_600_000},
    },
}
_TINY: Sizes = {
    "tokens": 6,
    "hidden": 8,
    "vocab": 40,
    "heads": 2,
    "length": 12,
    "batch": 1,
    "width": 8,
    "count": 2,
    "each": 30,
}


def sizes(kernel: str, smoke: bool) -> dict[str, Sizes]:
    """Sizes to measure a kernel at; only tiny ones for a smoke run."""
    return {"tiny": _TINY} if smoke else SIZES[kernel]


def for_check(size: Sizes) -> Sizes:
    """The same widths with fewer rows: float64 has to fit beside it."""
    if "width" in size:
        return {
            **size,
            "batch": 1,
            "heads": min(size["heads"], 2),
            "length": min(size["length"], 1024),
        }
    return {
        **size,
        **({"tokens": min(size["tokens"], 256)} if "tokens" in size else {}),
        **({"heads": 1} if "heads" in size else {}),
    }
