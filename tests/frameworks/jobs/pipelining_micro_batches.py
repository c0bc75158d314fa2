"""torch.distributed.pipelining: the last stage counts 2 micro-batches, the others 4."""
# framework: pipelining
# start: torchrun
# culprit: 3
# kinds: order, not_entered, mismatch, p2p_unmatched, end_stall
# frame: main
# undecided: bare

import torch
import torch.distributed as dist
from come import last_step
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    layer = torch.nn.Linear(8, 8)
    stage = PipelineStage(layer, rank, 4, torch.device("cpu"))
    count = 2 if rank == 3 else 4
    schedule = ScheduleGPipe(stage, n_microbatches=count, loss_fn=torch.nn.functional.mse_loss)
    last_step(rank)
    for _ in range(2):
        if rank == 0:
            schedule.step(torch.randn(8, 8))
        elif rank == 3:
            schedule.step(target=torch.randn(2 * count, 8))
        else:
            schedule.step()
    dist.barrier()


main()
