"""Whose exception it is: the probe's own, or one that a signal handler of the job raised in the middle of it."""

from __future__ import annotations

import os
from types import TracebackType

_LIBRARY = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_HERE = os.path.dirname(__file__) + os.sep  # noqa: PTH120 - compared with co_filename, which is a plain string


def is_ours(trace: TracebackType | None) -> bool:
    """Whether an exception was raised by the probe's own code (or C code or the standard library that it called).

    A signal handler may call anything before it raises, so that every frame must be ours, not the last one alone.
    """
    while trace is not None:
        if not _is_own(trace.tb_frame.f_code.co_filename):
            return False
        trace = trace.tb_next
    return True


def _is_own(filename: str) -> bool:
    if filename.startswith((_HERE, "<frozen")):
        return True
    # Installed packages often lie below the standard library's folder (conda, system Pythons, containers).
    return filename.startswith(_LIBRARY) and not any(part in filename for part in _INSTALLED)


def place(trace: TracebackType | None) -> str:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
