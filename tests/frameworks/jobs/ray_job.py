"""How the Ray jobs of this folder start: four workers of Ray Train on this machine."""

import os
from collections.abc import Callable

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TRAIN_ENABLE_STATE_TRACKING": "0"}

import ray
import ray.train
import ray.train.torch


def start() -> None:
    """A node of Ray on this machine."""
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        logging_level="warning",
        object_store_memory=100 << 20,
        _temp_dir=os.environ["HANG_FOLDER"],
    )


def train(loop: Callable[[], None]) -> None:
    """Run the loop in four workers."""
    start()
    workers = ray.train.ScalingConfig(num_workers=4)
    where = ray.train.RunConfig(storage_path=os.environ["HANG_FOLDER"])
    ray.train.torch.TorchTrainer(loop, scaling_config=workers, run_config=where).fit()


def rank() -> int:
    """Of this worker."""
    return ray.train.get_context().get_world_rank()
