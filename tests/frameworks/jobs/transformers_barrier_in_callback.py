"""A callback of the Trainer has a barrier for rank 0 alone."""
# framework: transformers
# start: torchrun
# culprit: 0
# kinds: order, not_entered, mismatch
# frame: on_step_end

import torch.distributed as dist
from come import last_step
from small_model import SmallModel, samples
from transformers import Trainer, TrainerCallback, TrainingArguments


class Report(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 3:
            last_step(dist.get_rank())
            if state.is_world_process_zero:
                dist.barrier()


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
    Trainer(SmallModel(), arguments, train_dataset=samples(), callbacks=[Report()]).train()


main()
