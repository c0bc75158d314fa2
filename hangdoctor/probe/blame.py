"""Whose exception it is: the probe's own, or one that a signal handler of the job raised in the middle of it."""

from __future__ import annotations

import os
from types import TracebackType

_HERE = os.path.dirname(__file__) + os.sep  # noqa: PTH120 - compared with co_filename, which is a plain string


def is_ours(trace: TracebackType | None) -> bool:
    """Whether an exception was raised by the probe's own code (or C code or the standard library that it called)."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return True
    name = trace.tb_frame.f_code.co_filename
    return name.startswith((_HERE, os.path.dirname(os.__file__), "<frozen"))  # noqa: PTH120


def place(trace: TracebackType | None) -> str:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
