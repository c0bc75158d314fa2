"""torchtitan, replicas of two shards (HSDP): rank 0 alone finds its loss the best so far, and saves."""
# framework: torchtitan
# start: torchrun
# culprit: 0
# kinds: order, not_entered, mismatch, checkpoint_wait
# frame: save_best

from dataclasses import dataclass

import titan_job
from come import last_step


class Trainer(titan_job.Trainer):
    @dataclass(kw_only=True, slots=True)
    class Config(titan_job.Trainer.Config):
        pass

    def train_step(self, batches):
        if self.step == 4:
            last_step(titan_job.rank())
        super().train_step(batches)
        if self.step == 3 and titan_job.rank() == 0:
            last_step(0)
            self.save_best()

    def save_best(self) -> None:
        self.checkpointer.save(self.step, last_step=True)


def main() -> None:
    config = titan_job.settings(Trainer, data_parallel_replicate_degree=2)
    config.checkpoint.enable = True
    config.checkpoint.interval = 100
    titan_job.train(config)


main()
