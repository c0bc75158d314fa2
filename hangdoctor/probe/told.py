"""What the job says of itself, kept in its box: phase, iteration, micro-batch, events, layout.

Texts and numbers are taken without running code of the job; an error of ours switches the probe off,
and nothing of it reaches the job.
"""

from __future__ import annotations

import time

from . import format as fmt
from . import torchnames
from .record_core import Holder
from .recorder import Recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .calls.tracer import Tracer


class Told(Holder):
    """The part of the probe that the job speaks to."""

    recorder: Recorder | None
    tracer: Tracer | None

    def __init__(self) -> None:
        self._phase = ""

    def begin(self) -> Recorder | None:
        """See `Probe`."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """See `Probe`."""
        raise NotImplementedError

    def set_phase(self, name: str) -> str:
        """Begin a phase, "" for none; returns the one before."""
        before = self._phase
        self._phase = name = _plain(name)
        recorder = self.recorder or self.begin()
        if recorder is not None:
            try:
                text = recorder.box.intern(name)
                recorder.box.put(fmt.H_PHASE, text)
                recorder.box.put(fmt.H_PHASE_SINCE, time.time_ns())
                recorder.mark(fmt.PHASE, -1, text)
            except Exception as error:
                self.fail(error)
        return before

    def learn_iteration(self, n: Any) -> None:
        """What the extension leaves to Python.

        The first one of a thread, a count that is not an int, and all while calls are traced.
        """
        n = _whole(n)
        recorder = self.recorder or self.begin()
        if recorder is not None:
            try:
                recorder.box.put(fmt.H_ITERATION, n)
                recorder.box.put(fmt.H_ITERATION_SINCE, time.time_ns())
                recorder.iteration = n if -(1 << 31) <= n < 1 << 31 else -1
                recorder.mark(fmt.ITERATION, n)
                if self.tracer is not None:
                    self.tracer.reached(n)
            except Exception as error:
                self.fail(error)

    def learn_micro_batch(self, n: Any) -> None:
        """The same of micro-batches."""
        n = _whole(n)
        recorder = self.recorder or self.begin()
        if recorder is not None:
            try:
                recorder.box.put(fmt.H_MICRO_BATCH, n)
                recorder.mark(fmt.MICRO_BATCH, n)
            except Exception as error:
                self.fail(error)

    def learn_step(self) -> None:
        """The same of an optimizer's steps."""
        recorder = self.recorder
        if recorder is not None:
            try:
                recorder.step()
                if recorder.iteration < 0 and self.tracer is not None:
                    self.tracer.reached(recorder.steps)
            except Exception as error:
                self.fail(error)

    def add_event(self, kind: str, text: str, n: Any) -> None:
        """Keep an event of the training; without a number it is of the iteration of now."""
        recorder = self.recorder or self.begin()
        if recorder is not None:
            try:
                iteration = recorder.iteration if n is None else _whole(n)
                recorder.events.add(_plain(kind), _plain(text), iteration)
            except Exception as error:
                self.fail(error)

    def set_layout(self, text: str) -> None:
        """Keep the layout of the job in the header."""
        recorder = self.recorder or self.begin()
        if recorder is not None:
            try:
                recorder.box.put_text(fmt.H_LAYOUT, text)
            except Exception as error:
                self.fail(error)


def _plain(text: Any) -> str:
    """A text of the job without any code of the job's; "" for what is none."""
    return str.__str__(text) if issubclass(type(text), str) else ""


def _whole(n: Any) -> int:
    """A count as the box keeps it, from whatever the job counts with (a float, a tensor); -1 for
    what is not a number.
    """
    if type(n) is int:
        return n if -(1 << 63) <= n < 1 << 63 else -1
    try:
        with torchnames.outside_of_modes(), torchnames.without_dispatch():
            number = int(n)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return -1
    return number if -(1 << 63) <= number < 1 << 63 else -1
