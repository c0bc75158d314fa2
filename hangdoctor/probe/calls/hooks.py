"""How the interpreter reports calls: sys.monitoring from Python 3.12 on, profile functions before;
in C or in Python.

A hook is installed while tracing is on and leaves nothing behind when it is removed. One thing
differs: before 3.12 the pure one reaches the main thread and threads that start later, not the
other threads that exist already.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol

from .hook_writer import Decide, Fail
from .monitoring_hook import Monitoring
from .profile_hooks import Profile, PythonProfile
from .ring import Ring


class Hook(Protocol):
    """One way to have calls reported; `variant` and `means` are numbers of `format`."""

    variant: int
    means: int
    left_alone: int  # threads with another profiler in them

    def install(self) -> None:
        """Begin to report, in every thread that can be reached.

        Raises:
            RuntimeError: other tools hold what it needs.
        """

    def adopt(self) -> None:
        """Reach threads that have come since, as far as this way needs it."""

    def pause(self, flag: bool) -> None:
        """Report nothing while `flag` is true; costs less than `remove` and `install`."""

    def remove(self) -> None:
        """End reporting and leave nothing behind."""


def extension() -> Any:
    """The extension for this interpreter, or None where it was not built."""
    try:
        from . import _calls  # type: ignore[attr-defined,unused-ignore]
    except ImportError:
        return None
    return _calls


def choose(ring: Ring, decide: Decide, fail: Fail, pure: bool) -> Hook:
    """The fastest hook that works here."""
    module = None if pure else extension()
    if hasattr(sys, "monitoring"):
        return Monitoring(ring, decide, fail, module)
    if module is not None:
        return Profile(ring, decide, module)
    return PythonProfile(ring, decide, fail)
