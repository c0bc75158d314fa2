"""Each kernel, forward and backward, in every flavour that works here, and through torch.compile.

    python -m benchmarks.trainer.kernels [--device cuda] [--hidden 4096] \\
        [--tokens 8192] [--no-compile]

Milliseconds, best of the repeated medians. On a CPU without TRITON_INTERPRET the Triton column is
empty.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from hangdoctor.train.kernels import apex_support, triton_support
from hangdoctor.train.kernels.registry import FLAVOURS
from hangdoctor.train.topology import TensorGroup

Inputs = Callable[[], tuple[Any, ...]]


def inputs(device: str, dtype: torch.dtype, tokens: int, hidden: int) -> dict[str, Inputs]:
    """kernel -> arguments of one call."""

    def made(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device, dtype=dtype, requires_grad=True)

    x, wide, bias, bias4 = (
        made(tokens, hidden),
        made(tokens, 4 * hidden),
        made(hidden),
        made(4 * hidden),
    )
    scores, logits = made(1, 16, 1024, 1024), made(tokens // 8, 50304)
    target = torch.randint(50304, (tokens // 8,), device=device)
    return {
        "bias_gelu": lambda: (wide, bias4),
        "bias_dropout_add": lambda: (x, bias, x, 0.1, True),
        "softmax": lambda: (scores, 0.125),
        "layer_norm": lambda: (x, bias, bias, 1e-5),
        "rms_norm": lambda: (x, bias, 1e-5),
        "cross_entropy": lambda: (logits, target, TensorGroup()),
    }


def milliseconds(call: Callable[[], Any], device: str, repeats: int) -> float:
    """The best of the repeated times of one call."""
    times = []
    for _ in range(repeats + 3):
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times[3:])


def forward_backward(
    function: Callable[..., torch.Tensor], arguments: Inputs
) -> Callable[[], None]:
    """One call of a kernel with its gradient."""
    y = function(*arguments())
    grad = torch.ones_like(y)

    def call() -> None:
        function(*arguments()).backward(grad)

    return call


def main(argv: list[str] | None = None) -> int:
    """Measure each kernel in each flavour, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.trainer.kernels", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args(argv)
    device = options.device
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    missing = {
        "triton": triton_support.unavailable(torch.device(device)),
        "apex": apex_support.unavailable(),
    }
    for name, why in missing.items():
        if why:
            print(f"no {name}: {why}", file=sys.stderr)
    columns = [
        "reference",
        "torch",
        *(n for n, why in missing.items() if not why),
        *([] if options.no_compile else ["compile"]),
    ]
    print(f"| kernel | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for kernel, arguments in inputs(device, dtype, options.tokens, options.hidden).items():
        cells = []
        for flavour in columns:
            function = (
                torch.compile(FLAVOURS[kernel]["reference"])
                if flavour == "compile"
                else FLAVOURS[kernel].get(flavour)
            )
            call = None if function is None else forward_backward(function, arguments)
            cells.append(
                "" if call is None else f"{milliseconds(call, device, options.repeats):.3f}"
            )
        print(f"| {kernel} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
