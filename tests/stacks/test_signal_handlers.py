"""Whether a process that stands in the handler of a signal has crashed."""

from __future__ import annotations

import signal

import pytest

from hangdoctor.model.frame import Frame
from hangdoctor.stacks.aborts import SIGNAL_HANDLER, signalled


def frames(*names: str) -> list[Frame]:
    return [Frame(name, "", 0) for name in names]


@pytest.mark.parametrize(
    ("stack", "lines", "number"),
    [
        (("??", SIGNAL_HANDLER, "_int_free", "close_file"), [], signal.SIGSEGV),
        (("on_signal", SIGNAL_HANDLER, "heat"), ["#0 on_signal (sig=11)"], signal.SIGSEGV),
        (("on_timer", SIGNAL_HANDLER, "_int_free"), ["#0 on_timer (sig=14, info=0x1)"], 0),
        (("??", SIGNAL_HANDLER, "poll", "opal_progress"), [], 0),
        (("heat", "main"), [], 0),
    ],
)
def test_the_signal_of_a_crash(stack: tuple[str, ...], lines: list[str], number: int) -> None:
    assert signalled(frames(*stack), lines) == number
