"""Marks of an Accelerator, which has no callbacks: its own methods are called through the marks.

A step begins with its first backward pass, as the loop around it belongs to the program. Waiting for
data and evaluations are the program's too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import probe

_SAVES = ("save_state", "save_model", "load_state")


class AcceleratorMarks:
    """Which step an accelerator is in."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        self._iteration = self._batches = 0
        self._is_over = True  # the gradients of the step are complete

    def backward(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        """The method, with its step and phase around it."""

        @functools.wraps(inner)
        def marked(*args: Any, **more: Any) -> Any:
            if self._is_over:
                self._iteration, self._batches = self._iteration + 1, 0
                probe.iteration(self._iteration)
            self._batches += 1
            probe.micro_batch(self._batches)
            self._is_over = bool(self._accelerator.sync_gradients)
            with probe.phase("backward"):
                return inner(*args, **more)

        return marked


def _in_checkpoint(inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def marked(*args: Any, **more: Any) -> Any:
        with probe.phase("checkpoint"):
            return inner(*args, **more)

    return marked


def mark(accelerator: Any) -> Any:
    """Put the marks around the methods of this one object, once."""
    if "_hangdoctor_marks" in vars(accelerator):
        return accelerator
    marks = accelerator._hangdoctor_marks = AcceleratorMarks(accelerator)
    accelerator.backward = marks.backward(accelerator.backward)
    for name in _SAVES:
        setattr(accelerator, name, _in_checkpoint(getattr(accelerator, name)))
    return accelerator
