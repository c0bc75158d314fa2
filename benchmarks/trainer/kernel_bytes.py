"""Bytes that the kernels of a step move through device memory, computed from the model's sizes.

    python -m benchmarks.trainer.kernel_bytes [--config train/configs/gpu_1b3.yaml]

Each input read once, each output written once, caches not counted: a bound, and no measurement.
`before` is the step as it was with rotary and bias gradients by torch, one pass a kernel.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

from hangdoctor.train.config import Config, load_config
from hangdoctor.train.flops import parameter_count

# bf16 2, float32 4. Forward of the eager rotary: to float32 6, four products of halves 16, their
# sums 12, cat 8, back to bf16 6. Backward: to float32 6, the products 16, a negation 4, sums 12, the
# halves together 8, back to bf16 6, query and key into the projection's gradient 4.
EAGER_ROTARY = (6 + 16 + 12 + 8 + 6) + (6 + 16 + 4 + 12 + 8 + 6 + 4)


@dataclass(frozen=True)
class Row:
    """A kernel: elements that it goes over in a step, bytes an element before and now."""

    name: str
    elements: float
    before: float
    now: float


def rows(config: Config, vocab: int) -> list[Row]:
    """All kernels that have changed, for one optimizer step."""
    m, t = config.model, config.train
    tokens = t.global_batch * m.seq_length
    stream = float(tokens * m.hidden_size * m.layers)
    inner = float(tokens * config.ffn_hidden_size * m.layers)
    weights = float(parameter_count(m, config.ffn_hidden_size, vocab))
    return [
        Row("rotary, query and key, forward and backward", 2 * stream, EAGER_ROTARY, 8),
        Row("bias gradient of the GELU", inner, 2 + 4 + 4, 0),
        Row("bias gradient behind attention", stream, 2 + 4 + 4, 0),
        Row("bias gradient behind the MLP", stream, 2 + 4 + 4, 2),
        Row("residual and norm behind attention, forward", stream, 6 + 4, 8),
        Row("residual and norm behind attention, backward", stream, 6 + 6, 8),
        Row("AdamW and the bf16 copy", weights, 28 + 6, 30),
    ]


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trainer.kernel_bytes")
    parser.add_argument("--config", default="train/configs/gpu_1b3.yaml")
    options = parser.parse_args(argv)
    config = load_config(["--config", options.config])
    vocab = config.model.vocab_size
    if not vocab:
        parser.error(f"{options.config} names no model.vocab_size")
    print("| kernel | elements a step, 10^9 | bytes an element, before | now | GB, before | now |")
    print("|---|---|---|---|---|---|")
    total = [0.0, 0.0]
    for row in rows(config, vocab):
        sizes = [row.elements * width / 1e9 for width in (row.before, row.now)]
        total = [a + b for a, b in zip(total, sizes, strict=True)]
        cells = f"{row.elements / 1e9:.2f} | {row.before:g} | {row.now:g}"
        print(f"| {row.name} | {cells} | {sizes[0]:.0f} | {sizes[1]:.0f} |")
    print(f"| all of these | | | | {total[0]:.0f} | {total[1]:.0f} |")
    logits = 2 * config.train.micro_batch * config.model.seq_length * vocab / 1e6
    print(f"\nLogits of a micro-batch: {logits:.0f} MB.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
