"""The stacks of all threads in a file beside the box, written while nothing gets on.

The box has the place of the thread that trains. What it waits for is often in another one, such as
an upload or a queue that is filled; and how many rounds it means to go is in the variables of its
frames. Of these only whole numbers are kept, and how long lists are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from . import format as fmt
from .beside_file import BesideFile, is_due
from .box import BoxWriter
from .record_core import native

_NAME = 60  # characters of a thread's
_AT_WORK = 8  # heartbeats
_THREAD = b"\t\t(thread)="


class LastStacks:
    """The file of one process. It stays when the rank gets on, as when its wait fails at a time
    limit; a reader sees by its time of which standstill it is.
    """

    def __init__(self, box: BoxWriter) -> None:
        self._file = BesideFile(box, fmt.STACKS_SUFFIX, fmt.STACKS_MAGIC)
        self._read: Callable[[], bytes] | None = getattr(native, "program_stacks", None)
        self._seen: dict[bytes, tuple[bytes, int]] = {}

    def idle(self, beats: int) -> None:
        """Nothing has got on for so many heartbeats."""
        if is_due(beats):
            self._write()

    def at_work(self, beats: int) -> None:
        """So many heartbeats have seen it at work, in a program whose calls are not counted:
        nothing else shows where that is.
        """
        if not beats % _AT_WORK:
            self._write()

    def _write(self) -> None:
        if self._read is not None:
            now = time.time_ns()
            stacks = self._dated(self._read(), now)
            self._file.write(b"\t\t(at)=%d\n%b%b" % (now, _names(), stacks))

    def got_on(self) -> None:
        """Its threads are no longer where they were."""
        self._seen = {}

    def _dated(self, stacks: bytes, now: int) -> bytes:
        """The stacks, with since when each thread was seen in its own."""
        before, self._seen = self._seen, {}
        found = []
        for part in stacks.split(_THREAD)[1:]:
            tid, _, frames = part.partition(b"\n")
            was, since = before.get(tid, (b"", 0))
            self._seen[tid] = frames, since if was == frames else now
            found.append(b"%b%b (since)=%d\n%b" % (_THREAD, tid, self._seen[tid][1], frames))
        return b"".join(found)


def _names() -> bytes:
    """`TAB TAB (name)=tid TAB name` of each thread that Python knows. Without its lock, which a
    thread of the job's may hold, and without the properties of a class of the job's.
    """
    lines = []
    for thread in list(getattr(threading, "_active", {}).values()):
        own = getattr(thread, "__dict__", {})
        name, tid = own.get("_name"), own.get("_native_id")
        if type(name) is str and type(tid) is int:
            shown = "".join(c if c.isprintable() else " " for c in name[:_NAME])
            lines.append(f"\t\t(name)={tid}\t{shown}\n")
    return "".join(lines).encode("utf-8", "replace")
