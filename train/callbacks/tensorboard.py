"""Tensorboard events, under the names of Megatron-DeepSpeed's charts, each by iteration and by
samples.
"""

from __future__ import annotations

from typing import Any

from ..config import Config
from ..loop import Callback, Trainer
from ..options import ConfigError
from ..train_state import Step
from .log import Window, throughput


class Tensorboard(Callback):
    """Writes the events of each step to a folder.

    Raises:
        ConfigError: the package tensorboard is missing.
    """

    def __init__(self, folder: str, vocab: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                f"--log.tensorboard needs the package tensorboard: pip install tensorboard ({error})"
            ) from error
        self.writer: Any = SummaryWriter(folder)
        self.vocab = vocab

    def after_step(self, trainer: Trainer, step: Step) -> None:
        """Record loss, learning rate and speed of the step."""
        config: Config = trainer.config
        window = Window()
        window.add(step)
        values = {
            "lm-loss-training/lm loss": step.loss,
            "learning-rate/learning-rate": step.learning_rate,
            "batch-size/batch-size": step.batch_size,
            "grad-norm/grad-norm": step.grad_norm,
            "loss-scale/loss-scale": step.loss_scale,
            "iteration-time/iteration-time": step.seconds,
            "throughput/tflops": throughput(config, self.vocab, window)["tflops"],
        }
        for name, value in step.extra.items():
            title = name.replace(" ", "-")
            values[f"{title}/{title}"] = value
        for name, value in values.items():
            self.add(trainer, name, value)
        if trainer.state.iteration % config.log.interval == 0:
            self.writer.flush()

    def add(self, trainer: Trainer, name: str, value: float) -> None:
        """Record one value twice: by iteration and by samples."""
        self.writer.add_scalar(name, value, trainer.state.iteration)
        self.writer.add_scalar(f"{name} vs samples", value, trainer.state.consumed_samples)

    def on_end(self, trainer: Trainer) -> None:
        """Write out what is left, and close."""
        self.writer.close()
