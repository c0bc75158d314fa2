"""Results as a table of a terminal, as Markdown and as plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from ..planning.rendered import columns, size
from .results import MEASURED, Result

SCHEMA = "hangdoctor.sweep/1"
LEGEND = "Sec/it: median from the second iteration on; Mem: peak of rank 0; TFLOPs: of a GPU"


def ordered(results: Sequence[Result]) -> list[Result]:
    """The fastest on top; those without seconds last, as they came."""
    return sorted(results, key=lambda r: (r.status != MEASURED, r.seconds or float("inf")))


def header(results: Sequence[Result], varied: Sequence[str]) -> list[str]:
    """The columns; an option that varies has one of its own, and so have the planner's seconds."""
    own = [name.rpartition(".")[2] for name in varied]
    planned = ["plan~"] if any(r.plan is not None for r in results) else []
    sizes = ["DP", "TP", "PP", "MBS", "GBS", "Mem", "Sec/it", "TFLOPs"]
    return ["Nodes", "Size", *own, *sizes, *planned, "Notes"]


def rows(results: Sequence[Result], varied: Sequence[str]) -> list[list[str]]:
    """The cells below them."""
    has_plan = any(r.plan is not None for r in results)
    return [_row(result, varied, has_plan) for result in ordered(results)]


def _row(result: Result, varied: Sequence[str], has_plan: bool) -> list[str]:
    s = result.sizes
    places = [s[name] for name in ("dp", "tp", "pp", "micro_batch", "global_batch")]
    planned = [number(result.plan)] if has_plan else []
    return [
        str(s["nodes"]),
        size(s["parameters"]),
        *(str(result.options.get(name, "-")) or "-" for name in varied),
        *map(str, places),
        memory(result.memory),
        number(result.seconds),
        number(result.tflops),
        *planned,
        note(result),
    ]


def note(result: Result) -> str:
    """The day of a measurement, as such tables have it; else what became of the job."""
    if result.status == MEASURED:
        return result.date[5:]
    return f"{result.status}: {result.note}" if result.note else result.status


def number(value: float | None) -> str:
    """189.06, 0.248, 3.44e-05; "-" where there is none."""
    if value is None:
        return "-"
    return f"{value:.2f}" if value >= 10 else f"{value:.3g}"


def memory(value: float | None) -> str:
    """47GB, 486MB; bytes by thousands, as the drivers count them."""
    if value is None:
        return "-"
    return f"{value / 1e9:.0f}GB" if value >= 1e10 else f"{value / 1e6:.0f}MB"


def table(results: Sequence[Result], varied: Sequence[str]) -> Iterator[str]:
    """For a terminal."""
    yield from columns([header(results, varied), *rows(results, varied)])
    yield LEGEND


def markdown(results: Sequence[Result], varied: Sequence[str]) -> Iterator[str]:
    """The same for a document."""
    names = header(results, varied)
    yield f"| {' | '.join(names)} |"
    yield "|" + "---|" * len(names)
    for cells in rows(results, varied):
        safe = [cell.replace("|", "\\|") for cell in cells]
        yield f"| {' | '.join(safe)} |"
    yield ""
    yield LEGEND


def data(results: Sequence[Result]) -> dict[str, Any]:
    """All of it as plain data, in the order of the table."""
    return {"schema": SCHEMA, "results": [dataclasses.asdict(r) for r in ordered(results)]}
