"""torch.distributed.pipelining: the forward of stage 1 waits for a lock that its rank has not released."""
# framework: pipelining
# start: torchrun
# culprit: 1
# kinds: not_entered, interpreter_lock
# frame: forward

import threading

import torch
import torch.distributed as dist
from come import last_step
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

cache_lock = threading.Lock()


class Cached(torch.nn.Module):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.layer, self.rank, self.calls = torch.nn.Linear(8, 8), rank, 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 6:
            last_step(self.rank)
            if self.rank == 1:
                cache_lock.acquire()
        if self.calls == 6 and self.rank == 1:
            with cache_lock:
                return self.layer(x)
        return self.layer(x)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stage = PipelineStage(Cached(rank), rank, 4, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
    for _ in range(3):
        if rank == 0:
            schedule.step(torch.randn(8, 8))
        elif rank == 3:
            schedule.step(target=torch.randn(8, 8))
        else:
            schedule.step()
        if rank > 1:
            last_step(rank)


main()
