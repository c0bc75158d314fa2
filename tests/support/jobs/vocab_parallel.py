"""Two ranks that split a vocabulary: losses and gradients of each flavour against the whole of it in
float64. Prints `same` at the end; a difference is an AssertionError.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.nn import functional as F

from hangdoctor.train.kernels.registry import FLAVOURS
from hangdoctor.train.topology import TensorGroup

COLUMNS = 12  # of each rank
FLAVOURS_HERE = ("torch", "triton") if os.environ.get("TRITON_INTERPRET") == "1" else ("torch",)


def main() -> None:
    """Real tokens that end in the first rank's part, at its edge, and in the second's."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    group = TensorGroup(rank, 2, dist.group.WORLD, (0, 1))
    for dtype in (torch.float32, torch.bfloat16):
        for real in (7, COLUMNS, COLUMNS + 5, 2 * COLUMNS):
            torch.manual_seed(real)
            hidden = torch.randn(9, 6).to(dtype)
            weight = torch.randn(2 * COLUMNS, 6).to(dtype)
            target, scale = torch.randint(real, (9,)), torch.rand(9)
            for flavour in FLAVOURS_HERE:
                compare(flavour, (hidden, weight, target, scale), group, real)
    dist.barrier()
    print("same", flush=True)
    dist.destroy_process_group()


def compare(flavour: str, inputs: tuple[torch.Tensor, ...], group: TensorGroup, real: int) -> None:
    """The two kernels of one flavour, on this rank's rows."""
    hidden, weight, target, scale = inputs
    limit = {"rtol": 3e-2, "atol": 5e-2} if hidden.dtype == torch.bfloat16 else {}
    own = weight[COLUMNS * group.rank :][:COLUMNS].clone().requires_grad_()
    wide, wide_weight = (t.double().requires_grad_() for t in (hidden, weight))
    losses = F.cross_entropy((wide @ wide_weight.t())[:, :real], target, reduction="none")
    (losses * scale).sum().backward()
    wanted_rows = wide_weight.grad[COLUMNS * group.rank :][:COLUMNS]
    for name in ("whole", "chunked"):
        here = hidden.clone().requires_grad_()
        own.grad = None
        if name == "whole":
            logits = F.linear(here, own)
            made = FLAVOURS["cross_entropy"][flavour](logits, target, group, real)
        else:
            kernel = FLAVOURS["linear_cross_entropy"][flavour]
            made = kernel(here, own, target, group, vocab_size=real, chunk=4)
        (made * scale).sum().backward()
        summed = here.grad.float()
        dist.all_reduce(summed)
        for got, want in ((made, losses), (own.grad, wanted_rows), (summed, wide.grad)):
            torch.testing.assert_close(got.float(), want.float(), **limit)


if __name__ == "__main__":
    main()
