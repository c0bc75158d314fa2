"""Four workers of Ray Train on a cluster that runs: ADDRESS FOLDER. One of them never comes to the third
all_reduce: it waits for a file in FOLDER that no one writes.
"""

import sys
import time
from pathlib import Path

import ray
import ray.train
import ray.train.torch
import torch
import torch.distributed as dist

ADDRESS, FOLDER = sys.argv[1], sys.argv[2]


def load_batch(shard: Path) -> torch.Tensor:
    """Wait for a file."""
    while not shard.exists():
        time.sleep(0.2)
    return torch.ones(8)


def train_loop(config: dict[str, str]) -> None:
    """Two steps together; in the third rank 2 is missing."""
    folder = Path(config["folder"])
    rank = ray.train.get_context().get_world_rank()
    for step in range(3):
        late = rank == 2 and step == 2
        (folder / f"rank.{rank}.{step}").touch()
        batch = load_batch(folder / "shard") if late else torch.ones(8)
        dist.all_reduce(batch)


def main() -> None:
    """Run it."""
    ray.init(address=ADDRESS, log_to_driver=False, logging_level="warning")
    workers = ray.train.ScalingConfig(num_workers=4)
    where = ray.train.RunConfig(storage_path=FOLDER)
    trainer = ray.train.torch.TorchTrainer(
        train_loop, train_loop_config={"folder": FOLDER}, scaling_config=workers, run_config=where
    )
    trainer.fit()


main()
