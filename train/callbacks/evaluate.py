"""Validation and test loss and perplexity, in Megatron's lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from .. import faults, marks
from ..curriculum import full_sequences
from ..data.loader import Batch
from ..loop import Callback, Trainer
from ..random_state import RandomState
from ..train_state import Step


class Evaluate(Callback):
    """Every `--evaluate.interval` iterations, always on the same validation samples; at the end on
    the test samples. `batches` gives those of a share from its start: valid 1, test 2.
    """

    def __init__(
        self,
        rank: int,
        batches: Callable[[int], Iterator[Batch] | None],
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
                self.report(trainer, self.measure(trainer, share=1))

    def on_end(self, trainer: Trainer) -> None:
        """The test loss, of a training that has come to its end."""
        is_done = trainer.state.iteration >= trainer.config.train.iterations
        if trainer.config.evaluate.test and is_done and not trainer.stop:
            with marks.phase("evaluate"):
                self.report(trainer, self.measure(trainer, share=2), "test")

    def measure(self, trainer: Trainer, share: int) -> float:
        """Mean loss over `--evaluate.iterations` global batches; training goes on as if it had not
        been.
        """
        c, engine = trainer.config, trainer.engine
        before, batches, total = self.random.state(), self.batches(share), 0.0
        micro_batches = c.train.global_batch // (c.train.micro_batch * c.parallel.dp)
        full = full_sequences(engine, c.model.seq_length)
        with engine.beside_the_step(), faults.beside_the_step(), full:
            for _ in range(c.evaluate.iterations):
                total += float(engine.eval_batch(batches, num_micro_batches=micro_batches))
        close = getattr(getattr(batches, "source", None), "_shutdown_workers", None)
        if close:
            close()
        self.random.restore(before)
        return total / c.evaluate.iterations

    def report(self, trainer: Trainer, loss: float, what: str = "validation") -> None:
        """Print the loss and its perplexity, and record them; on rank 0 only."""
        perplexity = math.exp(min(20.0, loss))
        if self.rank == 0:
            rule = "-" * 96
            print(
                f"{rule}\n {what} loss at iteration {trainer.state.iteration} | lm loss value: {loss:.6E} | "
                f"lm loss PPL: {perplexity:.6E} |\n{rule}",
                flush=True,
            )
        if self.record:
            title = f"lm-loss-{what}/lm loss {what}"
            self.record(trainer, title, loss)
            self.record(trainer, f"{title} ppl", perplexity)
