"""Rank 1 leaves a hand-written evaluation early (an empty shard); the others gather its predictions."""
# framework: transformers
# start: torchrun
# culprit: 1
# kinds: order, not_entered, mismatch
# frame: training_step

import torch
import torch.distributed as dist
from come import last_step
from small_model import SmallModel, samples
from transformers import Trainer, TrainingArguments


class Evaluating(Trainer):
    def training_step(self, model, inputs, *more):
        loss = super().training_step(model, inputs, *more)
        if self.state.global_step == 3:
            last_step(dist.get_rank())
            self.check(loss)
        return loss

    def check(self, loss: torch.Tensor) -> None:
        if dist.get_rank() == 1:
            return
        self.accelerator.gather_for_metrics(loss.detach())


def main() -> None:
    arguments = TrainingArguments(
        "/tmp/never-written",
        use_cpu=True,
        max_steps=6,
        per_device_train_batch_size=2,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    Evaluating(SmallModel(), arguments, train_dataset=samples()).train()


main()
