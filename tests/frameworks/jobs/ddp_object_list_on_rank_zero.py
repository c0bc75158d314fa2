"""A nanoGPT-like loop: rank 0 alone broadcasts the best loss after its evaluation."""
# framework: ddp
# start: torchrun
# culprit: 0
# kinds: order, not_entered, mismatch
# frame: share_best

import torch
import torch.distributed as dist
from come import last_step
from torch.nn.parallel import DistributedDataParallel


def share_best(best: float) -> None:
    gathered = [None] * 4
    dist.all_gather_object(gathered, {"best": best})


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        if step == 4:
            last_step(rank)
            if rank == 0:
                share_best(0.5)
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


main()
