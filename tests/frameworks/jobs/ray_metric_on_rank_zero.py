"""Ray Train: rank 0 alone gathers a metric of all workers for its log; the others go on."""
# framework: ray
# start: python
# culprit: 0
# kinds: order, not_entered, mismatch
# frame: train_loop|log_loss

import ray_job
import torch
import torch.distributed as dist
from come import last_step
from ray.train.torch import prepare_model


def log_loss(loss: torch.Tensor) -> None:
    losses = [torch.zeros(()) for _ in range(dist.get_world_size())]
    dist.all_gather(losses, loss.detach())
    print("loss", float(torch.stack(losses).mean()))


def train_loop() -> None:
    rank = ray_job.rank()
    model = prepare_model(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 3:
            last_step(rank)
            if rank == 0:
                log_loss(loss)


ray_job.train(train_loop)
