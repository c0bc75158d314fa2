"""A rank as it looks from outside: its stack, its processor time, its I/O. A rank without a black
box has no other evidence; of one with a box this shows whether it works or waits.
"""

from __future__ import annotations

import os
from pathlib import Path

from hangdoctor.model.capture import ThreadSample
from hangdoctor.readers import proc, pyspy
from hangdoctor.stacks.place_search import find_place
from hangdoctor.transport.messages import RankNow

from .tracked_rank import Tracked

_TICK = os.sysconf("SC_CLK_TCK")
_BUSY_CPU = 0.3  # of one core
_BUSY_BYTES = 1 << 20  # written or read in a second
_STACKS_S = 30.0
_STACK_AGAIN_S = 5.0  # after one that could not be read; twice as long each time
_STACK_LIMIT_S = 5.0
_SPIN_S = 3.0  # without progress, before a stack shows whether a rank works or waits for its device


def without_box(tracked: Tracked, mono: float, fields: list[str]) -> RankNow:
    """Without a box: a main thread that has not run has made no progress; one that ran has, unless
    its stack does not move.
    """
    main = proc.sample_thread(tracked.found.pid, tracked.found.pid)
    ran = main is not None and main.switches != tracked.switches
    if main is not None:
        tracked.switches = main.switches
    due = mono - tracked.stack_at >= _STACKS_S and (ran or not tracked.stacks)
    if due and fields[0] in "RS":
        _read_stack(tracked, mono)
    stuck = len(tracked.stacks) == 2 and tracked.stacks[0] == tracked.stacks[1]
    if ran and not stuck:
        tracked.changed_at = mono
    if ran:
        tracked.ran_at = mono
    rests = bool(tracked.stacks) and mono - tracked.ran_at >= _STACKS_S
    now = RankNow(tracked.found.rank, tracked.found.pid, max(0.0, mono - tracked.changed_at))
    now.still = stuck or rests
    return now


def spins(tracked: Tracked, mono: float) -> bool:
    """Whether the processor time of a rank whose backend runs ahead is waiting for its device,
    which spins.
    """
    if not tracked.ahead or mono - tracked.changed_at < _SPIN_S:
        return False
    if tracked.pending:
        return True
    if mono - tracked.stack_at >= _STACKS_S or tracked.stack_at < tracked.changed_at:
        tracked.stack_at = mono
        thread = _main_thread(tracked.found.pid)
        tracked.spins = thread is not None and _waits_for_device(thread)
    return tracked.spins


def busy(tracked: Tracked, fields: list[str], gap: float) -> bool:
    """Whether the rank has used a processor or moved bytes since the sample before, `gap` seconds
    ago.
    """
    cpu = (int(fields[11]) + int(fields[12])) / _TICK
    done = _io_bytes(tracked.found.pid)
    used, moved = cpu - tracked.cpu_s, done - tracked.io_bytes
    known = tracked.cpu_s >= 0 and gap > 0
    tracked.cpu_s, tracked.io_bytes = cpu, done
    return known and (used > _BUSY_CPU * gap or moved > _BUSY_BYTES * gap)


def _io_bytes(pid: int) -> int:
    """Bytes through read and write calls; 0 where it may not be read."""
    try:
        lines = Path(f"/proc/{pid}/io").read_bytes().split(b"\n", 2)
        return int(lines[0].split()[1]) + int(lines[1].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _main_thread(pid: int) -> ThreadSample | None:
    result = pyspy.dump(pid, _STACK_LIMIT_S)
    return next((t for t in result.threads if t.name == "MainThread"), None)


def _read_stack(tracked: Tracked, mono: float) -> None:
    """One more stack of a rank without a box.

    What a loaded host refused is tried again soon: evidence of stacks that do not change has to
    come in the first minute.
    """
    stack = _main_stack(tracked.found.pid)
    if stack:
        tracked.stacks = [*tracked.stacks[-1:], stack]
        tracked.stack_at, tracked.unread = mono, 0
        return
    rest_s = min(_STACKS_S, _STACK_AGAIN_S * 2**tracked.unread)
    tracked.stack_at, tracked.unread = mono - _STACKS_S + rest_s, min(tracked.unread + 1, 8)


def _main_stack(pid: int) -> str:
    """The main thread's stack with its counters as one text; "" where it could not be read."""
    main = _main_thread(pid)
    return ";".join(f"{f} {sorted(f.values.items())}" for f in main.frames) if main else ""


def _waits_for_device(thread: ThreadSample) -> bool:
    """Whether its stack is in a wait for communication or for the device, which uses the processor."""
    place = find_place(thread.frames, blocked=True)
    return place is not None and (place.communicates or place.kind == "device")
