"""Marks of Lightning's Trainer.

A checkpoint has a hook before it is written and none after: its phase lasts until the next hook.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from .. import probe


class LightningMarks:
    """The hooks of a Callback; `callback` makes one with Lightning's own base class."""

    def __init__(self) -> None:
        self._iteration = -1
        self._batches = 0  # of this iteration: gradients may be accumulated over several
        self._phase = ""
        self._before: list[str] = []  # phases that an evaluation has interrupted

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        """Launchers that spawn their ranks pickle the trainer."""
        return callback, ()

    def _set(self, phase: str) -> None:
        if phase != self._phase:
            self._phase = phase
            probe.phase(phase)

    # ----------------------------------------------------------------- training

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """The first batch comes next."""
        self._set("data")

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        """Its iteration is the next step of the optimizer."""
        iteration = int(trainer.global_step) + 1
        if iteration != self._iteration:
            self._iteration, self._batches = iteration, 0
            probe.iteration(iteration)
        self._batches += 1
        probe.micro_batch(self._batches)
        self._set("forward")

    def on_before_backward(self, trainer: Any, module: Any, loss: Any) -> None:
        """The loss is there."""
        self._set("backward")

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        """The gradients are there."""
        self._set("optimizer")

    def on_train_batch_end(
        self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """The next batch comes next."""
        self._set("data")

    def on_train_end(self, trainer: Any, module: Any) -> None:
        """Nothing more is known."""
        self._set("")

    # ----------------------------------------------------------------- evaluation

    def _begin_evaluation(self, trainer: Any, module: Any) -> None:
        self._before.append(self._phase)
        self._set("evaluate")

    def _end_evaluation(self, trainer: Any, module: Any) -> None:
        self._set(self._before.pop() if self._before else "")

    on_sanity_check_start = on_validation_start = _begin_evaluation
    on_test_start = on_predict_start = _begin_evaluation
    on_sanity_check_end = on_validation_end = _end_evaluation
    on_test_end = on_predict_end = _end_evaluation

    # ----------------------------------------------------------------- checkpoints

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
        """Collected; to be written next."""
        self._set("checkpoint")

    def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
        """Read; to be taken over next."""
        self._set("checkpoint")


def callback() -> Any:
    """The marks as a Callback of the package that the job uses."""
    old_name = "pytorch_lightning"
    uses_old = old_name in sys.modules and "lightning" not in sys.modules
    base = import_module(old_name if uses_old else _installed()).Callback
    return type("HangdoctorCallback", (LightningMarks, base), {})()


def _installed() -> str:
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name.partition(".")[0]:
                raise  # it is here, and lacks something
        else:
            return name
    raise ImportError("Lightning is not installed here: pip install lightning")
