"""Which section gets how much of the time: pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """A part of the command, in a module with `units` and `measure`."""

    name: str
    module: str
    weight: float  # its share of the time, beside the others' weights
    least_s: float  # below this it is not begun
    unit_s: float  # one unit that takes longer is ended


# The most valuable first: what time is left over goes to those behind.
SECTIONS = (
    Section("fingerprint", "benchmarks.gpu.fingerprint", weight=1.2, least_s=20, unit_s=60),
    Section("model", "benchmarks.gpu.model", weight=8, least_s=60, unit_s=180),
    Section("kernels", "benchmarks.gpu.kernels", weight=7, least_s=30, unit_s=90),
    Section("hangs", "benchmarks.gpu.hangs", weight=3, least_s=30, unit_s=90),
    Section("parity", "benchmarks.gpu.parity", weight=2.5, least_s=40, unit_s=180),
)


def budget(ahead: Sequence[Section], remaining_s: float) -> float:
    """Seconds for the first of the sections that are still ahead; 0 where not even its least fits."""
    first = ahead[0]
    if remaining_s < first.least_s:
        return 0.0
    share = remaining_s * first.weight / sum(section.weight for section in ahead)
    return max(share, first.least_s)


def selected(units: Sequence[str], wanted: Sequence[str], section: str) -> list[str]:
    """Units of a section that `--only` asks for: all without it, or `SECTION`, or `SECTION:PART`
    for those whose name has PART in it.
    """
    if not wanted:
        return list(units)
    chosen = []
    for unit in units:
        for word in wanted:
            name, _, part = word.partition(":")
            if name == section and part in unit:
                chosen.append(unit)
                break
    return chosen
