"""Where the training's thread is while nothing gets on, for a reader after the end of the process:
the main one, or, as below Ray, the one that calls collectives when the main one does not.

DistributedDataParallel, FSDP2 and functional collectives wait in C++, of which the box has no
operation: the frames tell such a wait from a rank that does something else. The heartbeat writes
them, and only where no operation, step or iteration has come for some beats.
"""

from __future__ import annotations

import os
import struct
import time

from . import awaited_lock, signal_times, training_thread
from . import format as fmt
from .last_records import LastRecords
from .last_stacks import LastStacks
from .record_core import native, read_proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .recorder import Recorder

_BEATS = 2  # without progress, before it is looked for
_LOCKS = 8  # beats between two looks at the file locks of the machine
_WORK_NS = 50_000_000  # a beat: more than waits that wake up now and then
_TURNS_NS = 2_000_000  # a beat, of the main thread: turns of a loop that sleeps use less
_WORD = 8
_ROW_WORDS = fmt.THREAD.size // _WORD
_ROOM = struct.calcsize(fmt.H_PLACE[1])
_MOST_BEATS = 0xFFFF
_RUNS = ord("R")
_ON_THE_WAY_OUT = 5  # beats that see a handler of a signal or an exit get on
_COUNTS = (fmt.H_ITERATION, fmt.H_MICRO_BATCH, fmt.H_STEPS, fmt.H_PHASE_SINCE)

_Signs = tuple[int, ...]


class LastPlace:
    """The place of one process's training thread, in its box; nothing without the extension, which
    alone reads frames without a hand on them.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._box = recorder.box
        self._groups = recorder.groups
        self._signs: _Signs = ()
        self._last_signs: _Signs = ()
        self._stirred = 0  # beats since a signal that saw other signs than the one before
        self._beats = 0  # without progress
        self._guard = 0
        self._thread = 0  # whose place it is; 0: the main one
        self._frames = b""
        self._since = self._cpu = 0
        self._idle_cpu = 0  # at the heartbeat that saw the last progress
        self._steady: set[bytes] = set()  # functions that it has been in at each beat since then
        self._runnable = 0  # beats since then at which it ran
        self._stacks = LastStacks(recorder.box)
        self._beside = LastRecords(recorder.box), self._stacks
        self._at_work = 0  # beats
        self._worked_ns = 0  # CPU of the whole process at the last beat
        self._busy = 0  # beats at which it had worked
        self._ran = _Ran()
        self._longest = 0  # beats without progress that ended

    def beat(self, now: int) -> None:
        """Once a heartbeat; `now` is its wall clock in ns."""
        if native is None:
            return
        tid = training_thread.find(self._box)
        found = native.program_place(tid) if tid else None
        self._thread = tid if found is not None else 0
        if found is None:
            found = native.program_place()
        if found is None:
            return
        frames, cpu = found
        signs = self._read_signs(frames, cpu)
        if self._is_held(signs, frames):
            return
        if signs != self._signs:
            self._got_on(now, signs, cpu)
            return
        self._beats = min(self._beats + 1, _MOST_BEATS)
        for kept in self._beside:
            kept.idle(self._beats)
        if self._beats >= _BEATS:
            self._show(now, frames, cpu)
            if (self._beats - _BEATS) % _LOCKS == 0:
                self._box.put(fmt.H_LOCK_HOLDER, awaited_lock.holder(self._box.pid))

    def _got_on(self, now: int, signs: _Signs, cpu: int) -> None:
        self._count_pause()
        self._signs, self._beats = signs, 0
        self._idle_cpu, self._runnable = cpu, 0
        self._box.put(fmt.H_GOT_ON, now)
        if self._frames:
            self._frames = b""
            self._box.put(fmt.H_PLACE_GUARD, 0)
            for kept in self._beside:
                kept.got_on()
        if self._recorder.uncounted:
            self._at_work += 1
            self._stacks.at_work(self._at_work)

    def _is_held(self, signs: _Signs, frames: bytes) -> bool:
        """Whether the place stays as it was when a signal came: what a handler or an exit does since then
        is no progress, unless the training goes on after it.
        """
        before, self._last_signs = self._last_signs, signs
        if not self._frames or (signs == self._signs and frames == self._frames):
            self._stirred = 0
            return False
        self._stirred += signs != before
        trains = signs[: len(_COUNTS)] != self._signs[: len(_COUNTS)]
        asked = signal_times.newest(self._box) > self._since
        return asked and not trains and self._stirred <= _ON_THE_WAY_OUT

    def _count_pause(self) -> None:
        if self._recorder.polls and self._beats > self._longest:
            self._longest = self._beats
            self._box.put(fmt.H_LONGEST_IDLE, self._longest)

    def _read_signs(self, frames: bytes, cpu: int) -> _Signs:
        """What changes where the program gets on: counts, and the thread's last operation."""
        words, regions = self._box.words, self._box.regions
        signs = [words[place[0] // _WORD] for place in _COUNTS]
        signs.append(self._groups.unrecorded())
        if self._recorder.uncounted:
            signs.append(self._count_work(frames, cpu))
        begin, rows, _ = regions["threads"]
        first, records, _ = regions["ring"]
        for at in range(begin // _WORD, begin // _WORD + rows * _ROW_WORDS, _ROW_WORDS):
            if not words[at]:
                break
            if words[at] == (self._thread or self._box.pid):
                last, waited = words[at + 1], words[at + 2]
                record = first // _WORD + last % records * fmt.RECORD_WORDS
                signs += [last, waited, words[record + fmt.LEFT_WORD]]
        return tuple(signs)

    def _count_work(self, frames: bytes, cpu: int) -> int:
        """Beats at which some thread of the process had worked: the one sign of progress where no
        operation is recorded.
        """
        before, self._worked_ns = self._worked_ns, time.process_time_ns()
        ran = self._ran.since_last(frames, cpu) if self._recorder.polls else None
        self._busy += self._worked_ns - before > _WORK_NS if ran is None else ran
        return self._busy

    def _show(self, now: int, frames: bytes, cpu: int) -> None:
        state = _state(self._thread or os.getpid())
        self._runnable += state == _RUNS
        functions = _functions(frames)
        self._steady = self._steady.intersection(functions) if self._frames else set(functions)
        self._guard += 2
        put = self._box.put
        put(fmt.H_PLACE_GUARD, self._guard | 1)
        if frames != self._frames:
            self._frames, self._since, self._cpu = frames, now, cpu
            put(fmt.H_PLACE, self._with_numbers(frames)[:_ROOM])
            put(fmt.H_PLACE_SINCE, now)
        put(fmt.H_PLACE_SEEN, now)
        put(fmt.H_PLACE_CPU, max(0, cpu - self._cpu))
        put(fmt.H_IDLE_CPU, max(0, cpu - self._idle_cpu))
        put(fmt.H_IDLE_BEATS, self._beats - _BEATS + 1)
        put(fmt.H_RUNNABLE_BEATS, min(self._runnable, self._beats - _BEATS + 1))
        put(fmt.H_LAST_STATE, state)
        put(fmt.H_STEADY, self._innermost_steady(functions))
        put(fmt.H_PLACE_GUARD, self._guard)

    def _with_numbers(self, frames: bytes) -> bytes:
        """With the numbers from which a reader works out the peer of an MPI call, or the thread's."""
        read = getattr(native, "program_numbers", None) if self._recorder.polls else None
        line = b"\t\t" + read().rstrip() + b"\n" if read is not None else b""
        if self._thread:
            line = b"\t\t%s=%d\n" % (fmt.PLACE_THREAD, self._thread)
            frames = frames[: frames.rfind(b"\n", 0, _ROOM - len(line)) + 1]
        return frames + line if len(frames) + len(line) < _ROOM else frames

    def _innermost_steady(self, functions: list[bytes]) -> int:
        for at, function in enumerate(functions):
            if function in self._steady:
                return min(at + 1, 255)
        return 0


class _Ran:
    """Whether a program whose waits use the processor has run Python since the last beat. It has where
    the interpreter's lock has changed hands; not by turns of a loop that sleeps.
    """

    def __init__(self) -> None:
        self._switches: int | None = None
        self._frames = b""
        self._cpu = 0  # of the main thread

    def since_last(self, frames: bytes, cpu: int) -> bool | None:
        """None where the interpreter does not show its lock."""
        switches = _switches()
        used, moved = cpu - self._cpu, frames != self._frames
        ran = switches != self._switches and (used > _TURNS_NS or moved)
        self._switches, self._frames, self._cpu = switches, frames, cpu
        return None if switches is None else ran


def _switches() -> int | None:
    """How often the interpreter's lock has changed hands; None where it does not show that."""
    read = getattr(native, "lock_switches", None)
    found: int | None = read() if read is not None else None
    return found


def _functions(frames: bytes) -> list[bytes]:
    """`name TAB file` of each frame."""
    return [line.rpartition(b"\t")[0] for line in frames.splitlines()]


def _state(tid: int) -> int:
    """Of a thread of ours, as a letter of proc(5); 0 where it cannot be read."""
    fields = read_proc(f"/proc/self/task/{tid}/stat", 256).rpartition(b") ")[2]
    return fields[0] if fields else 0
