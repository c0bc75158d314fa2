"""Ray Train: rank 3's shard has one batch less; it reports the epoch while the others reduce gradients."""
# framework: ray
# start: python
# culprit: 3
# kinds: order, not_entered, mismatch, end_stall
# frame: train_loop

import ray.train
import ray_job
import torch
from come import last_step
from ray.train.torch import prepare_model


def train_loop() -> None:
    rank = ray_job.rank()
    model = prepare_model(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.randn(3 if rank == 3 else 4, 4, 8)
    for epoch in range(2):
        for step, batch in enumerate(batches):
            if step == 2:
                last_step(rank)
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        ray.train.report({"loss": float(loss), "epoch": epoch})


ray_job.train(train_loop)
