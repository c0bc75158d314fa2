"""The training loop. Everything that is not a training step is a callback."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Protocol

from . import engine as engines
from . import faults, marks
from .config import Config
from .curriculum import sequence_length, set_sequence_length
from .data.loader import ShardedBatches
from .passing_over import passed_over
from .schedule import BatchSize, LearningRate
from .train_state import Step, TrainState


class Callback:
    """What happens beside the steps; every method does nothing unless a subclass says otherwise."""

    def on_start(self, trainer: Trainer) -> None:
        """Before the first step."""

    def before_step(self, trainer: Trainer) -> None:
        """Before each step."""

    def after_step(self, trainer: Trainer, step: Step) -> None:
        """After each step, with what it gave."""

    def after_passing_over(self, trainer: Trainer, first: int, samples: int) -> None:
        """After iterations from `first` to the present one were passed over (`--train.skip`)."""

    def on_end(self, trainer: Trainer) -> None:
        """After the last step, also where the training was ended early."""


class Engine(Protocol):
    """The part of DeepSpeed's PipelineEngine that the loop uses."""

    skipped_steps: int

    def train_batch(self, data_iter: Any) -> Any:
        """One step over all micro-batches of a batch; returns the mean loss."""

    def train_batch_size(self) -> int:
        """Samples of a batch, over all replicas."""

    def set_train_batch_size(self, size: int) -> None:
        """Change it, for the ramp-up."""

    def get_global_grad_norm(self) -> Any:
        """Norm of the last step's gradients before clipping, over all ranks."""


class Trainer:
    """Owns the state; runs steps until the wanted iterations are done or someone asks to `stop`."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        state: TrainState,
        schedules: tuple[LearningRate, BatchSize],
        callbacks: Sequence[Callback],
    ) -> None:
        self.config, self.engine, self.state = config, engine, state
        self.learning_rate, self.batch_size = schedules
        self.passed_over = passed_over(config.train.skip)
        self.sequence = sequence_length(config.train.curriculum, config.model.seq_length)
        self.callbacks = callbacks
        self.stop = ""  # why to leave the loop before its end
        self.diverged = False

    def run(self, batches: ShardedBatches | None) -> None:
        """Train until the configured iteration, or until a callback sets `stop`."""
        for callback in self.callbacks:
            callback.on_start(self)
        while self.state.iteration < self.config.train.iterations and not self.stop:
            number = self.state.iteration + 1
            if last := self.passed_over.last(number):
                self._pass_over(number, min(last, self.config.train.iterations))
                continue
            marks.iteration(number)
            faults.at_iteration(number)
            for callback in self.callbacks:
                callback.before_step(self)
            faults.point("step")
            step = self._step(batches)
            for callback in self.callbacks:
                callback.after_step(self, step)
        for callback in self.callbacks:
            callback.on_end(self)

    def _pass_over(self, first: int, last: int) -> None:
        """The loader passes over the same samples. No step was made: the learning rate stays."""
        state = self.state
        before = state.consumed_samples
        while state.iteration < last:
            size = self.batch_size.at(state.consumed_samples)
            state.iteration += 1
            state.consumed_samples += size
            state.consumed_tokens += size * self.sequence.at(state.iteration)
        for callback in self.callbacks:
            callback.after_passing_over(self, first, state.consumed_samples - before)

    def _step(self, batches: ShardedBatches | None) -> Step:
        start, state, engine = time.perf_counter(), self.state, self.engine
        step = Step(batch_size=self.batch_size.at(state.consumed_samples))
        if step.batch_size != engine.train_batch_size():
            engine.set_train_batch_size(step.batch_size)
        self._set_length(step, batches)
        step.learning_rate = self.learning_rate.at(state.scheduled_samples, state.scheduled_tokens)
        step.loss_scale = engines.loss_scale(engine)
        engines.set_learning_rate(engine, step.learning_rate)
        skipped_before = engine.skipped_steps
        step.loss = float(engine.train_batch(data_iter=batches))
        step.grad_norm = float(engine.get_global_grad_norm() or 0.0)
        step.skipped = engine.skipped_steps > skipped_before
        self._count(step)
        step.seconds = time.perf_counter() - start
        return step

    def _set_length(self, step: Step, batches: ShardedBatches | None) -> None:
        step.sequence_length = self.sequence.at(self.state.iteration + 1)
        set_sequence_length(self.engine, step.sequence_length)
        if batches is not None:
            batches.length = step.sequence_length
        if self.config.train.curriculum:
            step.extra["curriculum seqlen"] = step.sequence_length

    def _count(self, step: Step) -> None:
        state = self.state
        state.iteration += 1
        state.consumed_samples += step.batch_size
        tokens = step.batch_size * step.sequence_length
        state.consumed_tokens += tokens
        if not step.skipped:
            state.scheduled_samples += step.batch_size
            state.scheduled_tokens += tokens
        state.skipped_iterations += step.skipped
        state.nan_iterations += not math.isfinite(step.loss)
