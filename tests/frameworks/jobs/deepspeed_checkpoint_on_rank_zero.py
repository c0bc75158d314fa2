"""DeepSpeed: `save_checkpoint` is called by rank 0 alone."""
# framework: deepspeed
# start: torchrun
# culprit: 0
# kinds: order, not_entered, mismatch, checkpoint_wait
# frame: save

import os
import sys

import deepspeed
import torch
import torch.distributed as dist
from come import last_step

sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None


def save(engine) -> None:
    engine.save_checkpoint(os.environ["HANG_FOLDER"] + "/model")


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
        loss = engine(torch.randn(4, 8)).square().mean()
        engine.backward(loss)
        engine.step()
        if step == 3:
            last_step(rank)
            if rank == 0:
                save(engine)


main()
