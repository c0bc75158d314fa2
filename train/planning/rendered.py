"""A plan as lines of a terminal, as Markdown and as plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .estimates import DAY
from .layouts import Planned
from .lints import Lint
from .memory import GIB

SCHEMA = "hangdoctor.plan/1"
HEADER = (
    *("TP", "PP", "DP", "GPUs", "MBS", "recompute", "layers", "even", "bubble"),
    *("weights", "grads", "optim", "act~", "logits~", "passing~", "sum~"),
    *("ramp", "s/it~", "days~", "note"),
)
LEGEND = (
    "weights to sum: GiB of the fullest stage. ~: an estimate; "
    "seconds are those of the products at the given TFLOP/s, no communication"
)


@dataclass(frozen=True)
class Summary:
    """The model as a whole. Days and GPU hours are those of all GPUs at the given TFLOP/s; None
    without a number of tokens.
    """

    parameters: int
    ratio: float
    layers: int
    hidden: int
    gpus: int
    tflops: float
    reserve: float
    memory: float
    tokens: float
    tokens_an_iteration: int
    days: float | None
    hours: float | None

    def days_of(self, planned: Planned) -> float | None:
        """Days of a layout, all iterations as long as one of the full batch."""
        if not self.tokens:
            return None
        return self.tokens / self.tokens_an_iteration * planned.seconds / DAY


@dataclass(frozen=True)
class Plan:
    """What is shown: all layouts, and remarks on the first."""

    summary: Summary
    layouts: Sequence[Planned]
    lints: Sequence[Lint]


def head(plan: Plan) -> Iterator[str]:
    """The lines above the table."""
    s = plan.summary
    yield (
        f"model: {size(s.parameters)} ({s.parameters} parameters), {s.layers} layers, "
        f"hidden {s.hidden}, hidden / layers {s.ratio:.1f}"
    )
    if s.days is not None and s.hours is not None:
        yield (
            f"at best: {s.days:.2f} days, {s.hours:,.0f} GPU hours "
            f"for {s.tokens / 1e9:g}B tokens on {s.gpus} GPUs at {s.tflops:g} TFLOP/s (8 FLOPs a weight and token; estimate)"
        )
    usable = sum(p.is_usable for p in plan.layouts)
    yield (
        f"layouts: {len(plan.layouts)}, usable: {usable}; "
        f"{s.memory:g} GiB a GPU, {s.reserve:g} of them kept for CUDA and NCCL"
    )
    if not plan.layouts:
        yield (
            "no tp divides heads and MLP, no pp the layers, or no dp x micro-batch the global batch"
        )


def size(parameters: int) -> str:
    """206B, 1.3B, 356M."""
    if parameters >= 1e9:
        billions = parameters / 1e9
        return f"{billions:.0f}B" if billions >= 10 else f"{billions:.1f}B"
    return f"{parameters / 1e6:.3g}M"


def row(summary: Summary, planned: Planned) -> list[str]:
    """The cells of a layout; bytes in GiB, of the fullest stage."""
    m, days = planned.memory, summary.days_of(planned)
    parts = (m.weights, m.gradients, m.optimizer, m.activations, m.logits, m.passing, m.total)
    sizes = planned.layers
    layers = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)}-{max(sizes)}"
    return [
        *map(str, (planned.tp, planned.pp, planned.dp, planned.gpus, planned.micro_batch)),
        planned.recompute,
        layers,
        f"{planned.balance:.2f}",
        f"{planned.bubble:.1%}",
        *(f"{part / GIB:.1f}" for part in parts),
        "no" if planned.ramp_fault else "ok",
        f"{planned.seconds:.1f}" if planned.seconds >= 1 else f"{planned.seconds:.2g}",
        "-" if days is None else f"{days:.3g}",
        note(planned),
    ]


def note(planned: Planned) -> str:
    """Why a layout is not usable; empty where it is."""
    reasons = [] if planned.fits else [f"too large: stage {planned.stage}"]
    if planned.ramp_fault:
        reasons.append(f"batch {planned.ramp_fault}")
    return ", ".join(reasons)


def table(plan: Plan, count: int) -> Iterator[str]:
    """For a terminal: the first `count` layouts."""
    yield from head(plan)
    rows = [row(plan.summary, p) for p in plan.layouts[:count]]
    if rows:
        yield ""
        yield from columns([list(HEADER), *rows])
        yield LEGEND
    left = len(plan.layouts) - len(rows)
    if left > 0:
        yield f"{left} more: --top N, or --json"
    if plan.lints:
        yield ""
        yield _of_the_first(plan)
        yield from (f"  {lint.kind}: {lint.says}" for lint in plan.lints)


def _of_the_first(plan: Plan) -> str:
    first = plan.layouts[0]
    return (
        f"remarks on the first, TP {first.tp} PP {first.pp} DP {first.dp} MBS {first.micro_batch}; "
        f"its stages are full from a batch of {first.filled_from}:"
    )


def columns(rows: list[list[str]]) -> Iterator[str]:
    """Rows of cells, one above the other: to the right, the last column to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        padded = [cell.rjust(width) for cell, width in zip(cells[:-1], widths, strict=False)]
        yield "  ".join([*padded, cells[-1]]).rstrip()


def markdown(plan: Plan, count: int) -> Iterator[str]:
    """The same for a document."""
    for line in head(plan):
        yield f"- {line}"
    yield ""
    yield f"| {' | '.join(HEADER)} |"
    yield "|" + "---|" * len(HEADER)
    for planned in plan.layouts[:count]:
        yield f"| {' | '.join(row(plan.summary, planned))} |"
    yield ""
    yield LEGEND
    if plan.lints:
        yield ""
        yield _of_the_first(plan)
        yield ""
        yield from (f"- {lint.kind}: {lint.says}" for lint in plan.lints)


def data(plan: Plan) -> dict[str, Any]:
    """All layouts as plain data; sizes in bytes."""
    layouts = []
    for planned in plan.layouts:
        plain = dataclasses.asdict(planned)
        plain["memory"]["total"] = planned.memory.total
        plain["gpus"], plain["usable"] = planned.gpus, planned.is_usable
        plain["days"] = plan.summary.days_of(planned)
        layouts.append(plain)
    return {
        "schema": SCHEMA,
        "model": dataclasses.asdict(plan.summary),
        "estimated": ["activations", "logits", "passing", "seconds", "days", "hours"],
        "layouts": layouts,
        "remarks": [dataclasses.asdict(lint) for lint in plan.lints],
    }
