"""Whose exception it is: the probe's own, or one that the job raised in the middle of it.

Two ways lead there. A signal handler of the job may raise: its frames are then on the traceback. Or a thread of the job
raises by PyThreadState_SetAsyncExc (time limits, cancellation), which leaves no frame: then the exception is of a type
of the job's own, or a bare one without the words that the interpreter and its libraries always give.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

_LIBRARY = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep  # noqa: PTH120 - compared with co_filename, a plain string
_MODULES = sys.stdlib_module_names | {"torch"}  # of exceptions that what the probe calls may raise
_BARE = (AssertionError, MemoryError, StopIteration)  # what the interpreter raises without a word
_TOLD: tuple[type, ...] = (str, bytes, int, float, bool, type(None))


def is_ours(error: BaseException) -> bool:
    """Whether an exception was raised by the probe's own code (or C code or the standard library that it called).

    A signal handler may call anything before it raises, so that every frame must be ours, not the last one alone.
    """
    kind = type(error)
    top = str(kind.__module__).partition(".")[0]
    if top != "hangdoctor" and (top not in _MODULES or not (error.args or issubclass(kind, _BARE))):
        return False
    trace = error.__traceback__
    while trace is not None:
        if not _is_own(trace.tb_frame.f_code.co_filename):
            return False
        trace = trace.tb_next
    return True


class suppress:
    """`contextlib.suppress` for the probe's own exceptions alone: the job's go through, of whatever kind."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> bool:
        return error is not None and isinstance(error, self._kinds) and is_ours(error)


def _is_own(filename: str) -> bool:
    if filename.startswith((_HERE, "<frozen")):
        return True
    # Installed packages often lie below the standard library's folder (conda, system Pythons, containers).
    return filename.startswith(_LIBRARY) and not any(part in filename for part in _INSTALLED)


def place(trace: TracebackType | None) -> str:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def said(error: BaseException) -> str:
    """What an exception says, without running code of the job: its `__str__`, or that of what it carries."""
    kind = type(error)
    name = str(kind.__name__)
    if type(kind.__str__) is not type(BaseException.__str__):  # written in Python
        return name
    carried = [*error.args, getattr(error, "filename", None)]
    if all(type(what) in _TOLD for what in carried):
        return f"{name}: {error}"
    words = [str(what) for what in error.args if type(what) in _TOLD]
    return f"{name}: {', '.join(words)}"
