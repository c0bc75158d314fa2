"""Every iteration's numbers, unrounded, as JSON lines: for comparisons and for plots."""

from __future__ import annotations

import json
from pathlib import Path

from ..loop import Callback, Trainer
from ..train_state import Step


class Metrics(Callback):
    """Appends, so that a resumed run continues the file."""

    def __init__(self, path: str) -> None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        self.file = target.open("a")

    def after_step(self, trainer: Trainer, step: Step) -> None:
        """Write one line of JSON."""
        line = {
            "iteration": trainer.state.iteration,
            "consumed_samples": trainer.state.consumed_samples,
            "consumed_tokens": trainer.state.consumed_tokens,
            "loss": step.loss,
            "grad_norm": step.grad_norm,
            "learning_rate": step.learning_rate,
            "batch_size": step.batch_size,
            "loss_scale": step.loss_scale,
            "skipped": step.skipped,
            "seconds": step.seconds,
            **{name.replace(" ", "_"): value for name, value in step.extra.items()},
        }
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()

    def on_end(self, trainer: Trainer) -> None:
        """Close the file."""
        self.file.close()
