"""Stacks that a program's own guard had py-spy print into the job's log, or that a runtime printed of itself
when it was asked to end.

[2031-01-04 10:00:00 TP1] Pyspy dump for PID 812:
Process 812: serve::worker
Thread 812 (idle): "MainThread"
    wait (threading.py:327)

They tell why a job waits only if it did not fail: after a failure, each process is where the failure met it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import BadInput
from ..files import open_regular
from ..model.capture import JobCapture
from ..model.log_facts import (
    AnyFact,
    Cancelled,
    Ended,
    Guarded,
    JobLogs,
    KnownError,
    NodeLost,
    OomKill,
    PythonError,
    Signalled,
)
from ..text.late import late
from . import frames_without_numbers

_FAILED = (Cancelled, Ended, KnownError, NodeLost, OomKill, PythonError)
_DUMP = late(
    rb"^Process \d{1,18}: .{0,400}\n(?:(?!Process ).{0,200}\n){0,3}?Thread \d{1,18} \([^)\n]{0,60}\)",
    re.M,
)
_NATIVE = 1 << 20  # bytes of a file that may be such a stack
_MOST = 16 << 20  # bytes of a file that are looked through


def read(logs: JobLogs, files: Sequence[Path]) -> JobCapture | None:
    """The processes whose stacks are in these logs; None where there are none, or the job failed."""
    asked = [fact for fact in logs.facts if isinstance(fact, Guarded | Signalled)]
    if not asked or logs.unread or any(map(_is_failure, logs.facts)):
        return None
    holding = [file for file in files if _holds_stacks(_text(file))]
    if not holding:
        return None
    from . import pyspy_ranks

    try:
        return pyspy_ranks.read_files(holding)
    except BadInput:
        return None


def _holds_stacks(text: bytes) -> bool:
    """Whether py-spy's output is in it, or it is little else than the stack of a runtime that a signal ended."""
    native = frames_without_numbers.numbered(text[:_NATIVE].decode("utf-8", "replace"))
    return bool(native) or _DUMP.search(text) is not None


def _is_failure(fact: AnyFact) -> bool:
    if isinstance(fact, KnownError | PythonError) and fact.role in ("launcher", "note"):
        return False  # what follows from the guard's own end
    return isinstance(fact, _FAILED)


def _text(path: Path) -> bytes:
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return file.read(_MOST)
    except (OSError, BadInput):
        return b""
