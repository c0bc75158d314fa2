"""torchtitan, FSDP2 and tensor parallelism: rank 0 alone validates by its own clock, and averages its loss over all; the others go on."""
# framework: torchtitan
# start: torchrun
# culprit: 0
# kinds: order, not_entered, mismatch
# frame: validate_now

from dataclasses import dataclass

import titan_job
import torch
from come import last_step


class Trainer(titan_job.Trainer):
    @dataclass(kw_only=True, slots=True)
    class Config(titan_job.Trainer.Config):
        pass

    def train_step(self, batches):
        if self.step == 4:
            last_step(titan_job.rank())
        super().train_step(batches)
        if self.step == 3 and self.minutes_passed():
            last_step(0)
            self.validate_now()

    def minutes_passed(self) -> bool:
        return titan_job.rank() == 0

    def validate_now(self) -> None:
        loss = torch.tensor(1.0)
        torch.distributed.all_reduce(loss)


def main() -> None:
    titan_job.train(titan_job.settings(Trainer, tensor_parallel_degree=2))


main()
