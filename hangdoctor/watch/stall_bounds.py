"""How long a pause may last before it is a stall: from what was learned, else from constants.

Pure functions. All figures are seconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ..text.durations import duration
from .job_rhythm import ENOUGH, Learned

WORKING = "working"
_TIMES_SEEN = 1.5  # of the longest pause that was normal


class Settings(Struct, frozen=True):
    """Bounds in seconds."""

    stall_after_s: float = 0.0  # fixed by the user; 0 learns
    interval_s: float = 1.0  # between reports
    factor: float = 6.0  # a step five times as slow as the slowest seen is not a stall
    floor_s: float = 6.0
    floor_blind_s: float = 300.0  # ranks without a black box: stacks every 30 s are coarse evidence
    start_s: float = 300.0  # until the job has a rhythm
    unknown_s: float = 180.0  # a phase that was not seen often enough
    working_s: float = 120.0
    end_s: float = 60.0
    timeout_s: float = 600.0  # of the process groups, if unknown: NCCL's
    capture_s: float = 10.0  # what a capture needs before such a time-out ends the job
    deaf_s: float = 4.0  # without a report from any node nothing can be said
    incomplete_s: float = 1.5  # longer for nodes that may still come, where a job stood already
    warm_steps: int = 8  # samples with progress before the rhythm counts
    warm_s: float = 8.0


def limit_s(settings: Settings, timeouts: Iterable[float]) -> float:
    """Until when a capture must begin, to be done before the process groups' own time-out."""
    timeout = min(timeouts, default=settings.timeout_s)
    return timeout - min(max(settings.capture_s, 0.2 * timeout), 0.5 * timeout)


def bound(
    settings: Settings,
    learned: Learned,
    label: str,
    limit_s: float,
    *,
    boxes: bool,
    finished: bool,
) -> tuple[float, str]:
    """(seconds without progress that are still normal, where that figure is from).

    `label` is the phase, or `WORKING`; `boxes`: some rank has one; `finished`: some rank has left.
    """
    found, why = _learned(settings, learned, label, boxes=boxes, finished=finished)
    if found <= limit_s:
        return found, why
    # A pause that is longer and was seen to be normal cannot be what the time-out is about.
    high_s = learned.of(label).high_s if learned.warm else 0.0
    least = max(limit_s, _TIMES_SEEN * high_s)
    if found <= least:
        return found, why
    return least, f"{why}; the process groups' own timeout comes soon"


def _learned(
    s: Settings,
    learned: Learned,
    label: str,
    *,
    boxes: bool,
    finished: bool,
) -> tuple[float, str]:
    floor = s.floor_s if boxes else s.floor_blind_s
    rhythm = learned.of(label)
    if label == WORKING:
        most = max(s.working_s, floor, s.factor * rhythm.high_s)
        return most, "ranks work outside of collectives"
    if not learned.warm:
        return s.start_s, "the job is still starting"
    if finished:
        floor = max(floor, s.end_s)
    if rhythm.steps < ENOUGH:
        return max(s.unknown_s, floor), "this phase was not seen before"
    slower = s.factor * rhythm.high_s + 2 * s.interval_s
    most = max(floor, slower, _TIMES_SEEN * rhythm.longest_s)
    return most, f"up to {duration(rhythm.longest_s)} between steps is normal for this job"
