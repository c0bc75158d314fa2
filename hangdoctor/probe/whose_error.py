"""Whose exception it is: the probe's own, or one that the job raised in the middle of it.

Two ways lead there. A signal handler of the job may raise: its frames are then on the traceback. Or
a thread of the job raises by PyThreadState_SetAsyncExc (time limits, cancellation), which leaves no
frame: then the exception is of a type of the job's own, or a bare one without the words that the
interpreter and its libraries always give.

What an audit hook of the job raises (a sandbox that forbids new files) is the probe's: it is the
answer to what the probe asked for, and the job itself did nothing that its sandbox forbids.
"""

from __future__ import annotations

import os
import sys
from types import FrameType, TracebackType

_LIBRARY = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120
_PROBE = os.path.dirname(__file__) + os.sep  # noqa: PTH120
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep  # noqa: PTH120 - compared with co_filename, a plain string
_MODULES = sys.stdlib_module_names | {"torch"}  # of exceptions that what the probe calls may raise
_BARE = (AssertionError, MemoryError, StopIteration)  # what the interpreter raises without a word
_COMPILED = ("nanobind",)  # whose exceptions have a `__str__` of their own in C++, as JAX's have
_TOLD: tuple[type, ...] = (str, bytes, int, float, bool, type(None))


def is_ours(error: BaseException) -> bool:
    """Whether an exception was raised by the probe's own code (or C code or the standard library
    that it called).

    A signal handler may call anything before it raises, so that every frame must be ours, not the
    last one alone.
    """
    foreign = _first_foreign(error.__traceback__)
    if foreign is not None:
        return _is_audit_hook(foreign)
    kind = type(error)
    top = str(kind.__module__).partition(".")[0]
    return top == "hangdoctor" or (top in _MODULES and bool(error.args or issubclass(kind, _BARE)))


def _first_foreign(trace: TracebackType | None) -> FrameType | None:
    """The outermost frame of a traceback that is not the probe's, nor the standard library's; None
    without one.
    """
    while trace is not None:
        if not _is_own(trace.tb_frame.f_code.co_filename):
            return trace.tb_frame
        trace = trace.tb_next
    return None


def _is_audit_hook(frame: FrameType) -> bool:
    """Whether a frame was called as hooks of `sys.addaudithook` are, with an event's name and a
    tuple.

    Handlers of signals get a number and a frame. A method has its object before them.
    """
    code = frame.f_code
    given = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]
    return (str, tuple) in (
        tuple(type(what) for what in given[:2]),
        tuple(type(what) for what in given[1:3]),
    )


class suppress:
    """`contextlib.suppress` for the probe's own exceptions alone: the job's go through, of whatever
    kind.
    """

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


def installed(filename: str) -> bool:
    """Whether a file is of the standard library or an installed package, not of the job's own code."""
    return filename.startswith((_LIBRARY, _PROBE, "<frozen")) or any(
        part in filename for part in _INSTALLED
    )


def place(trace: TracebackType | None) -> str:
    """``file:line`` of the innermost frame; "" without a trace."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def said(error: BaseException) -> str:
    """What an exception says, without running code of the job: its `__str__`, or that of what it
    carries.
    """
    kind = type(error)
    name = str(kind.__name__)
    as_text = type(kind.__str__)
    if as_text is not type(BaseException.__str__) and as_text.__module__ not in _COMPILED:
        return name  # written in Python
    # torch's `KeyErrorMessage` is a string with a `__repr__` of its own.
    if len(error.args) == 1 and isinstance(error.args[0], str) and type(error.args[0]) is not str:
        return f"{name}: {str.__str__(error.args[0])}"
    carried = [*error.args, getattr(error, "filename", None)]
    if all(type(what) in _TOLD for what in carried):
        return f"{name}: {error}"
    words = [str(what) for what in error.args if type(what) in _TOLD]
    return f"{name}: {', '.join(words)}"
