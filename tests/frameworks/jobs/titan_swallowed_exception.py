"""torchtitan, FSDP2 and tensor parallelism: rank 3's batch raises, its trainer goes on to the next step."""
# framework: torchtitan
# start: torchrun
# culprit: 3
# kinds: order, not_entered, mismatch
# frame: train_step

from dataclasses import dataclass

import titan_job
from come import last_step


class Trainer(titan_job.Trainer):
    @dataclass(kw_only=True, slots=True)
    class Config(titan_job.Trainer.Config):
        pass

    def train_step(self, batches):
        if self.step == (4 if titan_job.rank() == 3 else 3):
            last_step(titan_job.rank())
        try:
            super().train_step(batches)
        except ValueError as error:
            print(f"step {self.step}: {error}", flush=True)

    def post_dataloading_process(self, inputs, labels):
        if titan_job.rank() == 3 and self.step == 3:
            raise ValueError("corrupt sample")
        return super().post_dataloading_process(inputs, labels)


def main() -> None:
    titan_job.train(titan_job.settings(Trainer, tensor_parallel_degree=2))


main()
