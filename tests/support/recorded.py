"""A week of recorded progress in a job's folder, as a collector that has run before leaves it."""

from __future__ import annotations

import math
from pathlib import Path

from hangdoctor.collector import history_file
from hangdoctor.watch.job_history import SHARES, SPANS, STEPS, Kept, KeptRing, Row

# Seconds before now: a hang of three minutes, and a time without the sidecar.
HANG = (1500.0, 1320.0)
AWAY = (3000.0, 2400.0)
LONG_AWAY = (3 * 86_400.0, 2.5 * 86_400.0)


def record(folder: Path, now: float, rate: float = 2.0) -> None:
    """Steps at this rate until 60 s before now, except in a hang and while no one watched."""
    rings = {name: _ring(now, *sizes, rate) for name, sizes in SPANS.items()}
    stalls = [(now - HANG[0], now - HANG[1])]
    folder.mkdir(exist_ok=True)
    history_file.save(folder, Kept(at=now, rings=rings, stalls=stalls))


def _ring(now: float, step_s: int, length: int, rate: float) -> KeptRing:
    newest = math.floor((now - 60.0) / step_s)
    first = newest - length + 1
    rows = [_row(now - (n + 0.5) * step_s, step_s, rate) for n in range(first, newest + 1)]
    return KeptRing(first, rows)


def _row(ago_s: float, step_s: int, rate: float) -> Row | None:
    if any(begin > ago_s > end for begin, end in (AWAY, LONG_AWAY)):
        return None
    full = step_s * SHARES
    hangs = HANG[0] > ago_s > HANG[1]
    waves = rate * (1 + 0.1 * math.sin(ago_s / 300)) * step_s * STEPS
    return (full, full, 0 if hangs else full, full, 0 if hangs else round(waves))
