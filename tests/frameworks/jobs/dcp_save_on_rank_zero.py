"""torch.distributed.checkpoint: rank 0 alone saves; the others are at the barrier behind it."""
# framework: dcp
# start: torchrun
# culprit: 0
# kinds: order, not_entered, mismatch, checkpoint_wait
# frame: save_model

import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from come import last_step
from torch.distributed.fsdp import fully_shard


def save_model(model: torch.nn.Module) -> None:
    dcp.save({"model": model.state_dict()}, checkpoint_id=os.environ["HANG_FOLDER"] + "/model")


def main() -> None:
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(3)])
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        model(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 3:
            last_step(dist.get_rank())
            if dist.get_rank() == 0:
                save_model(model)
        dist.barrier()


main()
