"""What a black box remembers of its rank's rhythm: the pauses between steps of progress, by phase.

For who comes late: an agent that is attached to a job that hangs already cannot learn its rhythm
any more.
Progress is that of the main flow (`glance.Flow`); the pause that lasts now is none of these.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from ..probe import format as fmt
from ..transport.messages import Past, PastPhase
from .box_position import BoxWatch
from .box_records import Record, record_at

_FIRST_STEPS = 3  # of the job: compilation and warm-up teach nothing of the others
_FIRST_S = 8.0  # ... where the job names no steps
_CALLS = 3  # of a step, where the job names none
_FEW = 3  # pauses that may be longer than the usual ones, or
_SHARE = 50  # one in N steps
_PHASES = 16
Event = tuple[int, str]  # when, and what phase begins with it


def past_of(watch: BoxWatch) -> Past:
    """The history of one box; 0 steps where it holds too little.

    Raises:
        OSError, struct.error: it cannot be read any more.
    """
    records = sorted(_records(watch))
    watch.learn(records)
    marks = [record for record in records if record.is_mark]
    iterations = [mark.entered_ns for mark in marks if mark.peer == fmt.ITERATION]
    steps = max(len(iterations), watch.steps)
    if not records:
        return Past(steps)
    first, last = records[0], records[-1]
    if not steps and last.entered_ns - first.entered_ns > 2e9 * _FIRST_S:
        steps = len(records) // _CALLS
    begin = first.entered_ns
    if last.serial < watch.region(fmt.H_RING)[1]:  # the ring reaches back to the first of all
        late = iterations[_FIRST_STEPS] if len(iterations) > _FIRST_STEPS else 0
        begin = late or begin + round(_FIRST_S * 1e9)
    phase = "" if any(mark.peer == fmt.PHASE for mark in marks) else watch.phase
    events = sorted(_events(watch, records))
    few = max(_FEW, len(iterations) // _SHARE)
    return Past(steps, _phases(_pauses(events, begin, phase), few))


def merged(told: Iterable[Past]) -> Past | None:
    """One history of several ranks: of each phase the longest; None without any."""
    phases: dict[str, PastPhase] = {}
    steps = 0
    for past in told:
        steps = max(steps, past.steps)
        for one in past.phases:
            known = phases.setdefault(one.name, PastPhase(one.name, 0, 0.0, 0.0))
            known.pauses = max(known.pauses, one.pauses)
            known.usual_s = max(known.usual_s, one.usual_s)
            known.longest_s = max(known.longest_s, one.longest_s)
    most = sorted(phases.values(), key=lambda p: -p.pauses)
    return Past(steps, most[:_PHASES]) if steps else None


def _records(watch: BoxWatch) -> Iterator[Record]:
    """All whole records of the ring."""
    begin, slots, width = watch.region(fmt.H_RING)
    if width < fmt.RECORD_BYTES:
        return
    data = os.pread(watch.fd, slots * width, begin)
    for slot in range(len(data) // width):
        record = record_at(data, slot * width)
        if record.serial and record.serial % slots == slot and record.closed:
            yield record


def _events(watch: BoxWatch, records: Iterable[Record]) -> Iterator[Event]:
    """Each progress of the main flow; a phase's name with the mark that begins it."""
    for record in records:
        if record.is_mark:
            begins = record.peer == fmt.PHASE
            yield record.entered_ns, (watch.text(record.signature) or "-") if begins else ""
        elif watch.flow.has(record.thread) and not watch.is_store_call(record):
            yield record.entered_ns, ""
            if record.left_ns:
                yield record.left_ns, ""


def _pauses(events: list[Event], begin: int, phase: str) -> dict[str, list[float]]:
    """Seconds between one progress and the next, by the phase in which they began."""
    found: dict[str, list[float]] = {}
    before = 0
    for at, mark in events:
        if before >= begin and before:
            found.setdefault(phase, []).append((at - before) / 1e9)
        before = at
        if mark:
            phase = "" if mark == "-" else mark
    return found


def _phases(pauses: dict[str, list[float]], few: int) -> list[PastPhase]:
    told = []
    for name, seconds in pauses.items():
        seconds.sort()
        usual = seconds[max(0, len(seconds) - 1 - few)]
        told.append(PastPhase(name[:200], len(seconds), usual, seconds[-1]))
    return sorted(told, key=lambda p: -p.pauses)[:_PHASES]
