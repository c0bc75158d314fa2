"""Where the main thread is while nothing gets on, for a reader after the end of the process.

DistributedDataParallel, FSDP2 and functional collectives wait in C++, of which the box has no
operation: the frames tell such a wait from a rank that does something else. The heartbeat writes
them, and only where no operation, step or iteration has come for some beats.
"""

from __future__ import annotations

import struct

from . import awaited_lock
from . import format as fmt
from .record_core import native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .recorder import Recorder

_BEATS = 2  # without progress, before it is looked for
_LOCKS = 8  # beats between two looks at the file locks of the machine
_WORD = 8
_ROW_WORDS = fmt.THREAD.size // _WORD
_ROOM = struct.calcsize(fmt.H_PLACE[1])
_COUNTS = (fmt.H_ITERATION, fmt.H_MICRO_BATCH, fmt.H_STEPS, fmt.H_PHASE_SINCE)

_Signs = tuple[int, ...]


class LastPlace:
    """The place of one process's main thread, in its box; nothing without the extension, which
    alone reads frames without a hand on them.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._box = recorder.box
        self._signs: _Signs = ()
        self._beats = 0  # without progress
        self._guard = 0
        self._frames = b""
        self._since = self._cpu = 0

    def beat(self, now: int) -> None:
        """Once a heartbeat; `now` is its wall clock in ns."""
        if native is None:
            return
        signs = self._read_signs()
        if signs != self._signs:
            self._signs, self._beats = signs, 0
            if self._frames:
                self._frames = b""
                self._box.put(fmt.H_PLACE_GUARD, 0)
                self._box.put(fmt.H_LOCK_HOLDER, 0)
            return
        self._beats += 1
        if self._beats >= _BEATS:
            self._show(now)
            if (self._beats - _BEATS) % _LOCKS == 0:
                self._box.put(fmt.H_LOCK_HOLDER, awaited_lock.holder(self._box.pid))

    def _read_signs(self) -> _Signs:
        """What changes where the program gets on: counts, and the main thread's last operation."""
        words, regions = self._box.words, self._box.regions
        signs = [words[place[0] // _WORD] for place in _COUNTS]
        begin, rows, _ = regions["threads"]
        first, records, _ = regions["ring"]
        for at in range(begin // _WORD, begin // _WORD + rows * _ROW_WORDS, _ROW_WORDS):
            if not words[at]:
                break
            if words[at] == self._box.pid:
                last, waited = words[at + 1], words[at + 2]
                record = first // _WORD + last % records * fmt.RECORD_WORDS
                signs += [last, waited, words[record + fmt.LEFT_WORD]]
        return tuple(signs)

    def _show(self, now: int) -> None:
        found = native.program_place()
        if found is None:
            return
        frames, cpu = found
        self._guard += 2
        put = self._box.put
        put(fmt.H_PLACE_GUARD, self._guard | 1)
        if frames != self._frames:
            self._frames, self._since, self._cpu = frames, now, cpu
            put(fmt.H_PLACE, frames[:_ROOM])
            put(fmt.H_PLACE_SINCE, now)
        put(fmt.H_PLACE_SEEN, now)
        put(fmt.H_PLACE_CPU, max(0, cpu - self._cpu))
        put(fmt.H_PLACE_GUARD, self._guard)
