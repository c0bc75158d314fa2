"""Where the main thread of an ended rank was last, by its box: what no recorded operation shows.

It says something only of a rank that had got on with nothing for longer than it ever did before, and
was there when the first rank ended: what came after that is no part of the hang.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from ..model.capture import Frame, ProcessSample, ThreadSample
from ..model.operations import RankOps
from ..model.pauses import is_long
from ..probe import format as fmt
from ..text.ranges import number_in
from .box_header import BlackBox, number, text

_FRESH_S = 2.5  # between the last heartbeat and the last sight of the place
_SHORTEST_S = 4.0  # without progress
_AT_START_S = 10.0  # the same in the first steps
_ENOUGH = 4  # signs of progress, to know its pauses
_IDLE = 0.05  # of the time on the CPU: less is a wait
_SET_UP = "init_process_group"


class LastPlace(Struct):
    """A stack, innermost frame first, and when it was there, by the rank's wall clock."""

    frames: list[Frame]
    since_s: float
    seen_s: float
    cpu_s: float  # used between the two


def place_of(first: bytes, second: bytes) -> LastPlace | None:
    """What two snapshots of one file agree on; None where nothing was written, or only in part."""
    guard = number(second, fmt.H_PLACE_GUARD)
    same = (
        first[fmt.H_PLACE_GUARD[0] : fmt.H_END_AT[0]]
        == second[fmt.H_PLACE_GUARD[0] : fmt.H_END_AT[0]]
    )
    if not guard or guard % 2 or not same:
        return None
    frames = [_frame(line) for line in text(second, fmt.H_PLACE).splitlines()]
    return LastPlace(
        frames=[frame for frame in frames if frame is not None],
        since_s=number(second, fmt.H_PLACE_SINCE) / 1e9,
        seen_s=number(second, fmt.H_PLACE_SEEN) / 1e9,
        cpu_s=number(second, fmt.H_PLACE_CPU) / 1e9,
    )


def _frame(line: str) -> Frame | None:
    name, _, rest = line.partition("\t")
    file, _, at = rest.partition("\t")
    return Frame(name, file, max(0, number_in(at))) if file else None


def samples_of(
    box: BlackBox, ops: RankOps, place: LastPlace | None, until: float
) -> list[ProcessSample]:
    """The place as two samples of a process, or as one where it was seen once; [] where it says
    nothing of the time `until` (0: the last heartbeat).
    """
    if place is None or not place.frames or place.seen_s < box.heartbeat_s - _FRESH_S:
        return []
    if until and place.since_s > until:
        return []
    signs = _signs(ops, until)
    idle = min(until or place.seen_s, place.seen_s) - max(signs, default=box.created_s)
    return _samples(box.pid, place) if _is_stuck(ops, signs, idle) else []


def _is_stuck(ops: RankOps, signs: list[float], idle: float) -> bool:
    """Whether it has been idle for longer than its pauses before; the first step's is apart, in
    which much is loaded and compiled.
    """
    first = min((mark.at_s for mark in ops.marks), default=0.0)
    steady = [at for at in signs if at >= first]
    if len(steady) < _ENOUGH:
        return idle > _AT_START_S
    usual = max(later - earlier for earlier, later in pairwise(steady))
    return idle > _SHORTEST_S and is_long(idle, usual)


def _signs(ops: RankOps, until: float) -> list[float]:
    """When it entered or left operations, and began iterations; set-up apart."""
    signs = [mark.at_s for mark in ops.marks]
    for operation in ops.operations:
        if operation.op != _SET_UP:
            signs += [operation.entered_s, operation.left_s]
    return sorted(at for at in signs if 0 < at <= (until or at))


def _samples(pid: int, place: LastPlace) -> list[ProcessSample]:
    seconds = place.seen_s - place.since_s
    idle = place.cpu_s <= _IDLE * seconds
    switches = 0 if idle else -1  # they are not counted: an idle thread is taken for one that waits
    times: Sequence[tuple[float, float]] = [(0.0, 0.0), (seconds, place.cpu_s)]
    return [
        ProcessSample(
            at_s=at,
            threads=[
                ThreadSample(
                    tid=pid,
                    name="MainThread",
                    cpu_s=cpu,
                    switches=switches,
                    frames=place.frames,
                )
            ],
        )
        for at, cpu in (times if seconds > 0 else times[:1])
    ]
