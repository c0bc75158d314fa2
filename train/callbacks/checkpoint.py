"""Saves every so often, and when the training leaves."""

from __future__ import annotations

from ..checkpoint import training
from ..checkpoint.store import Store
from ..loop import Callback, Trainer
from ..train_state import Step


class Checkpoint(Callback):
    """Saves at each interval and at the end."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def on_start(self, trainer: Trainer) -> None:
        """Say that this folder is in use."""
        if self.store.topology.rank == 0:
            training.begin(self.store.folder)

    def after_step(self, trainer: Trainer, step: Step) -> None:
        """Save when the interval is full; never what has diverged."""
        interval = trainer.config.checkpoint.interval
        if interval and trainer.state.iteration % interval == 0 and not trainer.diverged:
            self.store.save(trainer.state, trainer.learning_rate)

    def on_end(self, trainer: Trainer) -> None:
        """Save the last state, unless it has diverged, and wait until it is on disk."""
        if (
            not trainer.diverged
        ):  # a model that has come apart must not become the newest checkpoint
            self.store.save(trainer.state, trainer.learning_rate)
        self.store.wait()
        if self.store.topology.rank == 0:
            training.end(self.store.folder)
