"""A line in the log when loss or gradient norm jump, an event for the sidecar, and the user's
command.
"""

from __future__ import annotations

import shlex
import subprocess
import threading

from .. import marks
from ..loop import Callback, Trainer
from ..spikes.watch import Point, Spike, Watch
from ..spikes.words import event_kind, sentence
from ..train_state import Step

_LIMIT_S = 30.0


class Spikes(Callback):
    """On rank 0: every rank has the same loss. `command` is empty, or run for each spike."""

    def __init__(self, command: str) -> None:
        self.command = shlex.split(command)
        self.watch = Watch()
        self._running: list[threading.Thread] = []

    def after_step(self, trainer: Trainer, step: Step) -> None:
        """Say which spikes begin with this step."""
        point = Point(
            trainer.state.iteration,
            loss=step.loss,
            grad_norm=step.grad_norm,
            loss_scale=step.loss_scale,
            learning_rate=step.learning_rate,
            skipped=int(step.skipped),
        )
        for spike in self.watch.add(point):
            print(f" {sentence(spike)}", flush=True)
            marks.event(event_kind(spike), sentence(spike), spike.first)
            if self.command:
                thread = threading.Thread(target=self._act, args=(spike,), daemon=True)
                thread.start()
                self._running.append(thread)

    def _act(self, spike: Spike) -> None:
        """Never waited for by a step."""
        words = {
            "{iteration}": str(spike.first),
            "{what}": spike.what,
            "{summary}": sentence(spike),
        }
        command = []
        for word in self.command:
            for name, value in words.items():
                word = word.replace(name, value)
            command.append(word)
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=_LIMIT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f" --log.on_spike: {error}", flush=True)
            return
        if done.returncode:
            print(f" --log.on_spike: {command[0]} ended with {done.returncode}", flush=True)

    def on_end(self, trainer: Trainer) -> None:
        """Wait for commands that still run, each for its time limit at most."""
        for thread in self._running:
            thread.join(_LIMIT_S)
