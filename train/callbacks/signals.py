"""SIGTERM and SIGUSR1 (a scheduler's warning) on any rank, enough iterations or minutes, or the file
that ends a training: all ranks leave together.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from ..loop import Callback, Trainer
from ..train_state import Step


def is_there(name: str) -> bool:
    """Whether there is a file of that name. A file system that does not answer ends no training."""
    try:
        return bool(name) and Path(name).exists()
    except OSError:
        return False


class Signals(Callback):
    """Ends the training cleanly after a signal, or after as many steps as this run may do.

    `rank` 0 alone looks for the file: a thousand ranks would ask a shared file system.
    """

    def __init__(self, device: torch.device, rank: int) -> None:
        self.device, self.rank = device, rank
        self.received = 0
        self._before: dict[int, Any] = {}
        self._steps = 0

    def on_start(self, trainer: Trainer) -> None:
        """Take SIGTERM and SIGUSR1 over; the minutes count from here."""
        self._start = time.monotonic()
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
        self._ask_all(trainer)

    def _ask_all(self, trainer: Trainer) -> None:
        """What one rank has seen counts for all: a signal may reach one rank only, clocks differ."""
        t = trainer.config.train
        minutes = (time.monotonic() - self._start) / 60
        too_late = bool(t.exit_minutes) and minutes >= t.exit_minutes
        killed = self.rank == 0 and is_there(t.kill_switch)
        seen = [float(self.received), float(too_late), float(killed)]
        worst = torch.tensor(seen, device=self.device)
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        number, too_late, killed = (int(value) for value in worst.tolist())
        if killed:
            trainer.stop = f"{t.kill_switch} is there (--train.kill_switch)"
        if too_late:
            trainer.stop = f"{t.exit_minutes:g} minutes of this run are over"
        if number:
            trainer.stop = f"{signal.Signals(number).name} received"

    def on_end(self, trainer: Trainer) -> None:
        """Give the signals back to who had them."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
