"""What the hooks share: how the extension is attached to a ring, and how Python writes into one."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from . import format as fmt
from .ring import Ring

Decide = Callable[[CodeType, "FrameType | None"], int]
Fail = Callable[[BaseException], None]
MAX_KEPT = 1 << 16  # code objects whose answer is remembered


def attach(module: Any, ring: Ring, decide: Decide) -> None:
    """Have the extension write into a ring, from where the ring's own count says."""
    begin, slots, _ = ring.regions["ring"]
    places = begin, slots, fmt.HEADER_BYTES, fmt.H_HEAD[0]
    module.attach(ring.map, *places, decide, ring.thread)


class PythonWriter:
    """What the pure hooks share: answers by code object, and one event."""

    def __init__(self, ring: Ring, decide: Decide, fail: Fail) -> None:
        self._ring, self._decide, self._fail = ring, decide, fail
        # By id(): a code object's own hash reads all of it.
        self._ids: dict[int, tuple[CodeType, int]] = {}
        self._local = _thread._local()
        self.paused = False

    def answer(self, code: CodeType, frame: FrameType | None) -> int:
        """The number of a code object in the ring's table; -1 for one that is not followed."""
        known = self._ids.get(id(code))
        if known is not None:
            return known[1]
        id_ = self._decide(code, frame)
        if len(self._ids) >= MAX_KEPT:
            self._ids.clear()
        self._ids[id(code)] = (code, id_)  # the code itself: its number must not pass to another
        return id_

    def write(self, id_: int, kind: int) -> None:
        """One event of the current thread."""
        local, ring = self._local, self._ring
        try:
            index = local.index
            if ring.owners[index] != local.tid:  # its entry has passed on to a later thread
                index = local.index = ring.thread()
        except AttributeError:
            local.tid = _thread.get_native_id()
            index = local.index = ring.thread()
        ring.put(id_, index, kind)
