"""python -m benchmarks.initial_weights [--hidden 14336] [--heads 112] [--tp 8]: what making one
transformer layer costs a rank, by default of the 176B model under TP 8.

The layer is made in a process of its own; beside it, as a measure of the machine, the time that
torch takes to draw as many values.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import torch

from hangdoctor.train.config import load_config
from hangdoctor.train.kernels.registry import choose
from hangdoctor.train.model.context import ModelContext
from hangdoctor.train.model.layers import TransformerLayer
from hangdoctor.train.random_state import RandomState
from hangdoctor.train.topology import TensorGroup


def peak_mb() -> float:
    """Most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> int:
    """Print seconds and memory; 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hidden", type=int, default=14336)
    parser.add_argument("--heads", type=int, default=112)
    parser.add_argument("--tp", type=int, default=8)
    options = parser.parse_args()
    words = f"--model.hidden_size {options.hidden} --model.heads {options.heads}"
    config = load_config([*words.split(), "--parallel.tp", str(options.tp)])
    cpu, group = torch.device("cpu"), TensorGroup(options.tp // 2, options.tp)
    random = RandomState(1, 0, 0, group.rank, device=cpu)
    context = ModelContext(config, group, choose("reference", cpu), random, vocab=(257, 1024))
    before, start = peak_mb(), time.process_time()
    layer = TransformerLayer(context, 0)
    used, peak = time.process_time() - start, peak_mb()
    values = sum(p.numel() for p in layer.parameters())
    print(
        f"hidden {options.hidden}, rank {group.rank} of TP {options.tp}: {values / 1e6:.0f} M values in "
        f"{used:.1f} s of processor time, peak of memory {peak - before:.0f} MB of which {values * 4 / 1e6:.0f} MB stay"
    )
    del layer
    start = time.process_time()
    torch.empty(values).normal_()
    print(f"torch draws as many in {time.process_time() - start:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
