"""A training by transformers' Trainer with hangdoctor's callback:
hangdoctor run -- python transformers_training.py
"""

import torch
from transformers import Trainer, TrainingArguments

from hangdoctor.callbacks import trainer_callback


class SmallModel(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x, labels=None):
        y = self.layer(x)
        return {"loss": (y - labels).square().mean(), "logits": y}


def main() -> None:
    samples = [{"x": torch.full((8,), float(n)), "labels": torch.zeros(8)} for n in range(32)]
    arguments = TrainingArguments(
        "trained",
        use_cpu=True,
        max_steps=4,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        save_steps=4,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(
        SmallModel(),
        arguments,
        train_dataset=samples,
        eval_dataset=samples[:4],
        callbacks=[trainer_callback()],
    )
    trainer.train()


if __name__ == "__main__":
    main()
