"""Megatron's log line, its timers line, and the stop after too many NaN losses."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .. import flops
from ..config import Config
from ..loop import Callback, Trainer
from ..train_state import Step


@dataclass
class Window:
    """Sums since the last line."""

    iterations: int = 0
    seconds: float = 0.0
    samples: int = 0
    samples_of_length: dict[int, int] = field(default_factory=dict)
    loss: float = 0.0
    finite: int = 0
    skipped: int = 0
    nan: int = 0

    def add(self, step: Step) -> None:
        """Count one more step in."""
        self.iterations += 1
        self.seconds += step.seconds
        self.samples += step.batch_size
        before = self.samples_of_length.get(step.sequence_length, 0)
        self.samples_of_length[step.sequence_length] = before + step.batch_size
        self.skipped += step.skipped
        if math.isfinite(step.loss):
            self.loss += step.loss
            self.finite += 1
        else:
            self.nan += 1

    @property
    def mean_loss(self) -> float:
        """Mean of the finite losses, NaN where there was none."""
        return self.loss / self.finite if self.finite else float("nan")


def throughput(config: Config, vocab: int, window: Window) -> dict[str, float]:
    """samples_per_second, tflops of one device (recomputation counted), and mfu where the peak is
    known.
    """
    p, m = config.parallel, config.model
    devices = p.tp * p.pp * p.dp

    def operations(recompute: bool) -> float:
        done = 0.0
        for length, samples in window.samples_of_length.items():
            width = config.ffn_hidden_size
            done += flops.step_flops(
                m, vocab, samples, ffn=width, recompute=recompute, length=length
            )
        return done

    rates = {
        "samples_per_second": window.samples / window.seconds,
        "tflops": flops.tflops(operations(m.recompute), window.seconds, devices),
    }
    if config.log.peak_tflops:
        useful, peak = operations(recompute=False), config.log.peak_tflops
        rates["mfu"] = flops.utilization(useful, window.seconds, devices, peak)
    return rates


def log_line(trainer: Trainer, step: Step, window: Window, rates: dict[str, float]) -> str:
    """The line of an interval, in the form that Megatron-LM's `training_log` prints."""
    state, config = trainer.state, trainer.config
    parts = [
        f" iteration {state.iteration:8d}/{config.train.iterations:8d}",
        f"consumed samples: {state.consumed_samples:12d}",
        f"consumed tokens: {state.consumed_tokens:12d}",
        f"elapsed time per iteration (ms): {1000 * window.seconds / window.iterations:.1f}",
        f"learning rate: {step.learning_rate:.3E}",
        f"global batch size: {step.batch_size:5d}",
        f"lm loss: {window.mean_loss:.6E}",
        f"loss scale: {step.loss_scale:.1f}",
        f"grad norm: {step.grad_norm:.3f}",
        *extras(step),
        f"number of skipped iterations: {window.skipped:3d}",
        f"number of nan iterations: {window.nan:3d}",
        f"samples per second: {rates['samples_per_second']:.3f}",
        f"TFLOPs: {rates['tflops']:.4g}",
    ]
    if "mfu" in rates:
        parts.append(f"MFU: {100 * rates['mfu']:.1f}%")
    return " | ".join(parts) + " |"


def extras(step: Step) -> list[str]:
    """What the step has beside the usual, in Megatron's words."""
    forms = {
        "curriculum seqlen": "curriculum seqlen: {:5d}",
        "num zeros": "num zeros: {:.1f}",
        "params norm": "params norm: {:.3f}",
        "variance l1": "variance l1: {:.4E}",
        "variance l2": "variance l2: {:.4E}",
        "variance max": "variance max: {:.4E}",
        "memory MB": "peak memory (MB): {:.0f}",
    }
    return [form.format(step.extra[name]) for name, form in forms.items() if name in step.extra]


def timers_line(timers: dict[str, float], iterations: int) -> str:
    """Milliseconds an iteration in each part, in Megatron's order of names."""
    order = (
        "forward-compute",
        "forward-recv",
        "forward-send",
        "backward-compute",
        "backward-send",
        "backward-recv",
    )
    order += (
        "backward-params-all-reduce",
        "backward-embedding-all-reduce",
        "optimizer",
        "batch-generator",
    )
    parts = [f"{name}: {1000 * timers[name] / iterations:.2f}" for name in order if name in timers]
    return "time (ms) | " + " | ".join(parts)


class Log(Callback):
    """Prints on rank 0 every `--log.interval` iterations."""

    def __init__(self, rank: int, vocab: int) -> None:
        self.rank, self.vocab = rank, vocab
        self.window = Window()
        self.nan_in_a_row = 0

    def on_start(self, trainer: Trainer) -> None:
        """Switch the engine's timers on where their times are to be logged."""
        trainer.engine.timed.enabled = trainer.config.log.timers and self.rank == 0

    def after_step(self, trainer: Trainer, step: Step) -> None:
        """Collect the step; print a line when the interval is full."""
        self.window.add(step)
        self._watch_nan(trainer, step)
        if trainer.state.iteration % trainer.config.log.interval:
            return
        if self.rank == 0:
            rates = throughput(trainer.config, self.vocab, self.window)
            print(log_line(trainer, step, self.window, rates), flush=True)
            if trainer.config.log.timers:
                print(timers_line(trainer.engine.timed.take(), self.window.iterations), flush=True)
        self.window = Window()

    def after_passing_over(self, trainer: Trainer, first: int, samples: int) -> None:
        """Print which iterations were passed over."""
        if self.rank == 0:
            last = trainer.state.iteration
            which = f"iteration {first}" if first == last else f"iterations {first}-{last}"
            said = (
                f" {which}: passed over (--train.skip), {samples} samples consumed without a step"
            )
            print(said, flush=True)

    def _watch_nan(self, trainer: Trainer, step: Step) -> None:
        self.nan_in_a_row = 0 if math.isfinite(step.loss) else self.nan_in_a_row + 1
        limit = trainer.config.train.stop_after_nan
        if limit and self.nan_in_a_row >= limit:  # every rank has the same loss: all stop together
            trainer.diverged = True
            trainer.stop = f"the loss was not finite {self.nan_in_a_row} times in a row"
