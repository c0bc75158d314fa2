"""NCCL's blocking wait (TORCH_NCCL_BLOCKING_WAIT=1), in which no watchdog tells torch's recorder
that an operation has completed: all of them look pending to the end.

The host returns from a call only once it has completed, so all that was begun before the last one is
done. Of calls with a handle that is an assumption: they are waited for later.
"""

from __future__ import annotations

from itertools import pairwise

import psutil

from .flight_recorder_format import Dump

_NAMES = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
_ON = frozenset({"1", "y", "yes", "on", "t", "true"})  # as torch reads its switches


def is_on(pid: int) -> bool:
    """Whether a process has it by its environment; False where that cannot be read."""
    try:
        environ = psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return False
    return any(environ.get(name, "").lower() in _ON for name in _NAMES)


def settle(dump: Dump) -> None:
    """Take all but the last operation of a dump for done, where none is marked so."""
    if dump.backend != "nccl" or any(entry.state == "done" for entry in dump.entries):
        return
    newest = sorted(dump.entries, key=lambda entry: entry.entered_ns)
    for entry, later in pairwise(newest):
        entry.state, entry.left_ns = "done", later.entered_ns
