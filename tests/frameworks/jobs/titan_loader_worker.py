"""torchtitan, FSDP2: a loader worker of rank 2 waits for a shard that never comes."""
# framework: torchtitan
# start: torchrun
# culprit: 2
# kinds: data_wait
# frame: train_step

import time
from dataclasses import dataclass
from pathlib import Path

import titan_job
from come import last_step


class Samples(titan_job.Samples):
    def sample(self):
        if self.rank == 2 and self.step >= 6:
            wait_for_shard(Path("/nonexistent/shard-2"))
        return super().sample()


def wait_for_shard(path: Path) -> None:
    while not path.exists():
        time.sleep(1)


class Loader(titan_job.Loader):
    samples = Samples

    @dataclass(kw_only=True, slots=True)
    class Config(titan_job.Loader.Config):
        num_workers: int = 1


class Trainer(titan_job.Trainer):
    @dataclass(kw_only=True, slots=True)
    class Config(titan_job.Trainer.Config):
        pass

    def train_step(self, batches):
        if self.step == 3:
            last_step(titan_job.rank())
        super().train_step(batches)


def main() -> None:
    titan_job.train(titan_job.settings(Trainer, Loader))


main()
