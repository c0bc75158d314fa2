"""Ray Train: a data-loader worker of rank 1 waits for a shard that never comes."""
# framework: ray
# start: python
# culprit: 1
# kinds: data_wait
# frame: train_loop

import time
from pathlib import Path

import ray_job
import torch
from come import last_step
from ray.train.torch import prepare_model


class Shards(torch.utils.data.Dataset):
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 64

    def __getitem__(self, n: int) -> torch.Tensor:
        if self.rank == 1 and n >= 8:
            wait_for_shard(Path("/nonexistent/shard-1"))
        return torch.randn(8)


def wait_for_shard(path: Path) -> None:
    while not path.exists():
        time.sleep(1)


def train_loop() -> None:
    rank = ray_job.rank()
    model = prepare_model(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(Shards(rank), batch_size=4, num_workers=1)
    for step, batch in enumerate(loader):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 1:
            last_step(rank)


ray_job.train(train_loop)
