"""torch.distributed.checkpoint: the disk of rank 3 does not take its file."""
# framework: dcp
# start: torchrun
# culprit: 3
# kinds: checkpoint_wait, io_wait, not_entered
# frame: write_data|save_model|main

import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from come import last_step
from torch.distributed.fsdp import fully_shard


class Writer(dcp.FileSystemWriter):
    def write_data(self, plan, planner):
        if dist.get_rank() == 3:
            path = os.environ["HANG_FOLDER"] + "/full-disk"
            os.mkfifo(path)
            with open(path, "wb") as file:
                file.write(b"weights")
        return super().write_data(plan, planner)


def main() -> None:
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(3)])
    fully_shard(model)
    last_step(dist.get_rank())
    folder = os.environ["HANG_FOLDER"] + "/model"
    dcp.save({"model": model.state_dict()}, storage_writer=Writer(folder))


main()
