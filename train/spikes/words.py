"""A spike as a sentence and as a row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from .watch import Spike

_HEAD = ("iterations", "what", "worst", "at", "usual", "deviations", "warm-up")


def number(value: float) -> str:
    """Four digits, or what it is instead of a number."""
    return f"{value:.4g}" if math.isfinite(value) else str(value)


def warm_up(spike: Spike) -> str:
    """Where it is from the end of the warm-up; empty where that is unknown."""
    if spike.after_warm_up is None:
        return ""
    return f"{spike.after_warm_up} iterations after the end of the warm-up"


def sentence(spike: Spike) -> str:
    """What began, as the training's log says it."""
    at = f"spike at iteration {spike.first}: {spike.what}"
    worst = "" if spike.peak == spike.first else f" (at {spike.peak})"
    said = {
        "jump": f"{at} {number(spike.value)}{worst} is {spike.score:.1f} deviations above its median {number(spike.usual)}",
        "nan": f"{at} is not finite",
        "slide": f"{at} has slid from {number(spike.usual)} to {number(spike.value)}",
    }[spike.kind]
    where = warm_up(spike)
    return f"{said}; {where}" if where else said


def event_kind(spike: Spike) -> str:
    """The word by which the sidecar's actions choose it: spike, nan, slide."""
    return "spike" if spike.kind == "jump" else spike.kind


def rows(spikes: Sequence[Spike]) -> Iterator[tuple[str, ...]]:
    """The table's rows, the head first."""
    yield _HEAD
    for spike in spikes:
        span = str(spike.first) if spike.first == spike.last else f"{spike.first}-{spike.last}"
        after = spike.after_warm_up
        yield (
            span + ("" if spike.is_over else " on"),
            spike.what,
            number(spike.value),
            str(spike.peak),
            "-" if spike.kind == "nan" else number(spike.usual),
            f"{spike.score:.1f}" if spike.kind == "jump" else spike.kind,
            "-" if after is None else f"{after:+d}",
        )


def table(spikes: Sequence[Spike]) -> Iterator[str]:
    """Columns under one another."""
    cells = list(rows(spikes))
    widths = [max(len(row[i]) for row in cells) for i in range(len(_HEAD))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
