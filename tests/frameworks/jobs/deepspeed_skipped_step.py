"""DeepSpeed ZeRO-1: rank 2 skips a batch; the others wait for its gradients."""
# framework: deepspeed
# start: torchrun
# culprit: 2
# kinds: order, not_entered, mismatch, end_stall
# frame: main

import sys

import deepspeed
import torch
import torch.distributed as dist
from come import last_step

sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None


def main() -> None:
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    settings = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": 1},
        "optimizer": {"type": "AdamW", "params": {"torch_adam": True, "lr": 1e-3}},
        "zero_allow_untested_optimizer": True,
    }
    model = torch.nn.Linear(8, 8)
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=settings
    )
    for step in range(6):
        if step == 5:
            last_step(rank)
        if rank == 2 and step == 3:
            continue
        loss = engine(torch.randn(4, 8)).square().mean()
        engine.backward(loss)
        engine.step()
    dist.barrier()


main()
