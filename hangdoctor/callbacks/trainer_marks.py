"""Marks of the Trainer of Hugging Face's transformers.

It has no hook before an evaluation or a save, but says with each step which of them come next.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .. import probe


class TrainerMarks:
    """The events of a TrainerCallback; `callback` makes one with the library's own base class."""

    def __init__(self) -> None:
        self._phase = ""
        self._batches = 0

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        """Launchers that spawn their ranks pickle the trainer."""
        return callback, ()

    def _set(self, phase: str) -> None:
        if phase != self._phase:
            self._phase = phase
            probe.phase(phase)

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The first batch comes next."""
        self._set("data")

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """A step of the optimizer, of one batch or several."""
        probe.iteration(int(state.global_step) + 1)
        self._batches = 0
        self._next_batch()

    def _next_batch(self) -> None:
        self._batches += 1
        probe.micro_batch(self._batches)
        self._set("train")

    def on_substep_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """One batch of several is done."""
        self._next_batch()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The gradients are there."""
        self._set("optimizer")

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """What comes next is decided by the callbacks before this one."""
        self._set(_next_phase(control))

    on_epoch_end = on_step_end

    def on_prediction_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Also of an evaluation that the program itself begins."""
        self._set("evaluate")

    def on_evaluate(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """An evaluation is over; a save may follow."""
        self._set("checkpoint" if control.should_save else "data")

    def on_predict(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """A prediction that the program began is over."""
        self._set("")

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """It is written."""
        self._set("data")

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Nothing more is known."""
        self._set("")


def _next_phase(control: Any) -> str:
    if control.should_evaluate:
        return "evaluate"
    return "checkpoint" if control.should_save else "data"


def callback() -> Any:
    """The marks as a TrainerCallback."""
    base = import_module("transformers").TrainerCallback
    return type("HangdoctorCallback", (TrainerMarks, base), {})()
