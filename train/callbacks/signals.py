"""SIGTERM and SIGUSR1 (a scheduler's warning) on any rank, or enough iterations: all ranks leave
together.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from ..loop import Callback, Trainer
from ..train_state import Step


class Signals(Callback):
    """Ends the training cleanly after a signal, or after as many steps as this run may do."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.received = 0
        self._before: dict[int, Any] = {}
        self._steps = 0

    def on_start(self, trainer: Trainer) -> None:
        """Take SIGTERM and SIGUSR1 over."""
        for number in (signal.SIGTERM, signal.SIGUSR1):
            self._before[number] = signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = number

    def after_step(self, trainer: Trainer, step: Step) -> None:
        """End the training where a signal has asked for it on any rank, or the step limit is
        reached.
        """
        self._steps += 1
        limit = trainer.config.train.exit_after
        if limit and self._steps >= limit:
            trainer.stop = f"{limit} iterations of this run are done"
        if trainer.state.iteration % trainer.config.train.signal_interval:
            return
        worst = torch.tensor([float(self.received)], device=self.device)
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)  # a signal may reach one rank only
        if worst.item():
            trainer.stop = f"{signal.Signals(int(worst.item())).name} received"

    def on_end(self, trainer: Trainer) -> None:
        """Give the signals back to who had them."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
