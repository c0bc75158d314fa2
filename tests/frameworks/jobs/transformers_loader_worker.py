"""A data-loader worker of rank 2 waits for a file that never comes."""
# framework: transformers
# start: torchrun
# culprit: 2
# kinds: data_wait
# frame: main

import os
import time
from pathlib import Path

from come import last_step
from small_model import Samples, SmallModel
from transformers import Trainer, TrainerCallback, TrainingArguments


class Tokens(Samples):
    read = 0  # in each worker

    def __getitem__(self, n: int):
        self.read += 1
        if os.environ["RANK"] == "2" and self.read > 4:  # two batches: transformers reads one ahead
            wait_for_shard(Path("/nonexistent/shard-2"))
        return super().__getitem__(n)


def wait_for_shard(path: Path) -> None:
    while not path.exists():
        time.sleep(1)


class Say(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 1 or args.process_index == 2:
            last_step(args.process_index)


def main() -> None:
    arguments = TrainingArguments(
        "/tmp/never-written",
        use_cpu=True,
        max_steps=8,
        per_device_train_batch_size=2,
        dataloader_num_workers=1,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    Trainer(SmallModel(), arguments, train_dataset=Tokens(), callbacks=[Say()]).train()


main()
