"""Validation loss and perplexity, in Megatron's lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from .. import faults, marks
from ..data.loader import Batch
from ..loop import Callback, Trainer
from ..random_state import RandomState
from ..train_state import Step


class Evaluate(Callback):
    """Every `--evaluate.interval` iterations, always on the same validation samples."""

    def __init__(
        self,
        rank: int,
        batches: Callable[[], Iterator[Batch] | None],
        random: RandomState,
        record: Callable[[Trainer, str, float], None] | None = None,
    ) -> None:
        self.rank, self.batches, self.random, self.record = rank, batches, random, record

    def after_step(self, trainer: Trainer, step: Step) -> None:
        """Evaluate when the interval is full."""
        interval = trainer.config.evaluate.interval
        if interval and trainer.state.iteration % interval == 0:
            with marks.phase("evaluate"):
                faults.point("evaluate")
                self.report(trainer, self.measure(trainer))

    def measure(self, trainer: Trainer) -> float:
        """Mean loss over `--evaluate.iterations` global batches; training goes on as if it had not
        been.
        """
        c, engine = trainer.config, trainer.engine
        before, batches, total = self.random.state(), self.batches(), 0.0
        micro_batches = c.train.global_batch // (c.train.micro_batch * c.parallel.dp)
        with engine.beside_the_step(), faults.beside_the_step():
            for _ in range(c.evaluate.iterations):
                total += float(engine.eval_batch(batches, num_micro_batches=micro_batches))
        close = getattr(getattr(batches, "source", None), "_shutdown_workers", None)
        if close:
            close()
        self.random.restore(before)
        return total / c.evaluate.iterations

    def report(self, trainer: Trainer, loss: float) -> None:
        """Print the validation loss and its perplexity, and record them; on rank 0 only."""
        if self.rank == 0:
            rule = "-" * 96
            perplexity = math.exp(min(20.0, loss))
            print(
                f"{rule}\n validation loss at iteration {trainer.state.iteration} | lm loss value: {loss:.6E} | "
                f"lm loss PPL: {perplexity:.6E} |\n{rule}",
                flush=True,
            )
        if self.record:
            self.record(trainer, "lm-loss-validation/lm loss validation", loss)
            self.record(
                trainer, "lm-loss-validation/lm loss validation ppl", math.exp(min(20.0, loss))
            )
