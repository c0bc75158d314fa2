"""Zeros among the gradients, the norm of all weights, and memory, where `--log.*` asks for them."""

from __future__ import annotations

import torch

from .. import sizes
from ..loop import Callback, Trainer
from ..train_state import Step


class Sizes(Callback):
    """To come before those that print: it adds to the step."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def after_step(self, trainer: Trainer, step: Step) -> None:
        """Measure what is asked for; collective over the stages and slices of the model."""
        log = trainer.config.log
        if log.num_zeros:  # counted before the optimizer's step, which clears the gradients
            step.extra["num zeros"] = trainer.engine.zeros
        if log.params_norm:
            step.extra["params norm"] = sizes.params_norm(trainer.engine)
        if log.adam_variance:
            step.extra |= sizes.adam_variance(trainer.engine)
        if log.memory:
            step.extra["memory MB"] = sizes.peak_memory(self.device) / 1e6
