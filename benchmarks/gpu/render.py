"""gpu.json as Markdown, with what is met and what is not: lines only, nothing is measured here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .targets import (
    BANDWIDTH,
    MFU,
    NOISE,
    Ceilings,
    arithmetic,
    bandwidth,
    ceilings,
    is_right,
    kernel_verdicts,
    share,
    specified_tflops,
)

Row = dict[str, Any]


def markdown(found: dict[str, Any]) -> str:
    """All tables of the results."""
    sections = found["sections"]
    rows = {name: section.get("rows", []) for name, section in sections.items()}
    ceiling = ceilings(row for row in rows.get("fingerprint", []) if "what" in row)
    made = found["made"]
    # Without a GPU, or with the smallest sizes, nothing is claimed.
    claims = made.get("device") == "cuda" and not made.get("smoke")
    failed = sections.get("kernels", {}).get("failed", {})
    parts = [
        *_head(made, ceiling),
        *_machine(rows.get("fingerprint", [])),
        *_model(rows.get("model", []), ceiling),
        *(_model_target(rows.get("model", []), ceiling) if claims else ()),
        *_slowest(rows.get("model", [])),
        *_kernels(rows.get("kernels", []), ceiling),
        *(_kernel_targets(rows.get("kernels", []), failed, ceiling) if claims else ()),
        *_hangs(rows.get("hangs", [])),
        *_parity(rows.get("parity", [])),
        *_missing(sections),
    ]
    return "\n".join(parts)


def _head(made: dict[str, Any], ceiling: Ceilings) -> Iterator[str]:
    where = ceiling.device or made.get("device", "")
    yield f"## `python -m benchmarks.gpu`: {where}, {made.get('at', '')} UTC"
    yield ""
    if made.get("smoke"):
        yield "Smoke run with the smallest sizes: it shows that everything runs, and no speed."
        yield ""


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table of Markdown; nothing where it has no row."""
    if not rows:
        return
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        cells = [cell.replace("|", "\\|").replace("\n", " ") for cell in row]
        yield f"| {' | '.join(cells)} |"
    yield ""


def number(value: float | None, digits: int = 2) -> str:
    """A figure; empty where there is none."""
    if value is None or math.isnan(value):
        return ""
    return f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    """A share; empty where it is not known."""
    return "" if value is None else f"{100 * value:.1f} %"


def met(value: bool | None) -> str:
    """The last column of a table with a target."""
    if value is None:
        return "not measured"
    return "met" if value else "**not met**"


def _machine(rows: Sequence[Row]) -> Iterator[str]:
    settings = [(str(r["what"]), str(r["value"])) for r in rows if "value" in r]
    yield from table(("machine", ""), settings)
    measured = []
    for row in rows:
        if "gb_per_s" in row:
            what = "copy on the device, read and written"
            measured.append((what, f"{row['gb_per_s']:.0f} GB/s", f"{row['ms']:.3f}"))
        elif "tflops" in row:
            what = f"bf16 product {row['what']}"
            measured.append((what, f"{row['tflops']:.1f} TFLOP/s", f"{row['ms']:.3f}"))
    yield from table(("ceiling", "measured", "ms"), measured)


# ---------------------------------------------------------------------- model


def _model(rows: Sequence[Row], ceiling: Ceilings) -> Iterator[str]:
    if not rows:
        return
    yield "### The 1.3B model"
    yield ""
    peak = specified_tflops(ceiling.device)
    lines = []
    for row in sorted(rows, key=lambda r: -r["tokens_per_s"]):
        lines.append(
            (
                row["way"],
                row["recompute"],
                str(row["micro_batch"]),
                number(row["step_ms"], 1),
                number(row["tokens_per_s"], 0),
                number(row["tflops"], 1),
                percent(share(row["tflops"], ceiling.tflops)),
                percent(share(row["tflops"], peak)),
                number(row["memory_mb"] / 1000, 1),
            )
        )
    columns = "kernels|recompute|micro-batch|ms a step|tokens/s|TFLOP/s|MFU, measured peak|MFU, data sheet|GB"
    yield from table(columns.split("|"), lines)


def _model_target(rows: Sequence[Row], ceiling: Ceilings) -> Iterator[str]:
    best = _best(rows)
    if best is None:
        return
    reached = share(best["tflops"], ceiling.tflops)
    verdict = met(None if reached is None else reached >= MFU)
    yield f"Target: MFU of at least {percent(MFU)} of the measured peak: {percent(reached)}, {verdict}."
    yield ""


def _best(rows: Sequence[Row]) -> Row | None:
    ours = [row for row in rows if row["way"] != "plain_gpt"]
    return max(ours, key=lambda row: row["tokens_per_s"], default=None)


def _slowest(rows: Sequence[Row]) -> Iterator[str]:
    best = _best(rows)
    if best is not None and best["slowest"]:
        yield f"The ten slowest kernels of a step ({best['unit']}):"
        yield ""
        lines = [
            (k["name"], str(k["calls"]), number(k["ms"]), percent(k["share"]))
            for k in best["slowest"]
        ]
        yield from table(("kernel", "calls", "ms", "share"), lines)


# ---------------------------------------------------------------------- kernels


def _kernels(rows: Sequence[Row], ceiling: Ceilings) -> Iterator[str]:
    measured = [row for row in rows if "kernel" in row]
    if not measured:
        return
    yield "### Kernels"
    yield ""
    lines = []
    for row in measured:
        lines.append(
            (
                row["kernel"],
                row["size"],
                row["flavour"],
                number(row["forward_ms"], 3),
                number(row["backward_ms"], 3),
                number((row["forward_bytes"] + row["backward_bytes"]) / 1e6, 0),
                percent(bandwidth(row, ceiling)),
                percent(arithmetic(row, ceiling)),
                f"{row['error']:.1e}" if is_right(row) else f"**wrong: {row['error']:.1e}**",
            )
        )
    columns = "kernel|size|flavour|forward, ms|backward, ms|MB|of a copy|of the product|error"
    yield from table(columns.split("|"), lines)


def _kernel_targets(rows: Sequence[Row], failed: Iterable[str], ceiling: Ceilings) -> Iterator[str]:
    measured = [row for row in rows if "kernel" in row]
    verdicts = kernel_verdicts(measured, ceiling, failed)
    if not verdicts:
        return
    yield (
        f"Target: at least {percent(BANDWIDTH)} of its ceiling, or not slower than the best of the "
        f"others ({percent(NOISE - 1)} are noise), and right. Ours is Triton's where there is one."
    )
    yield ""
    lines = []
    for v in verdicts:
        best = f"{v.peer} {number(v.peer_ms, 3)}" if v.peer else ""
        text = met(v.met) + (f": {v.why}" if v.why else "")
        lines.append(
            (v.kernel, v.size, f"{v.ours} {number(v.ms, 3)}", percent(v.reached), best, text)
        )
    columns = "kernel|size|ours, ms|of its ceiling|best other, ms|target"
    yield from table(columns.split("|"), lines)


# ---------------------------------------------------------------------- right or not


def right(value: bool | None) -> str:
    """Whether a check came out as it has to."""
    if value is None:
        return "not measured"
    return "right" if value else "**wrong**"


def _hangs(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    yield "### hangdoctor on a GPU"
    yield ""
    cases = [
        (
            row["case"],
            row["expected"],
            row["kind"],
            row["sentence"],
            number(row["seconds"], 1),
            right(row["right"]),
        )
        for row in rows
        if "case" in row
    ]
    yield from table("process|expected|dump says|sentence|s|".split("|"), cases)
    held = [(r["source"], r["unit"], r["says"], right(r["right"])) for r in rows if "source" in r]
    yield from table("source|process|held|".split("|"), held)


def _parity(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    yield "### Right and exact"
    yield ""
    lines = []
    for row in rows:
        value = "" if "value" not in row else f"{row['value']:.2e}"
        limit = f"{row['limit']:.0e}" if "limit" in row else ""
        lines.append((row["check"], value, limit, row.get("why", ""), right(row["right"])))
    yield from table("check|value|limit|why|".split("|"), lines)


def _missing(sections: dict[str, Any]) -> Iterator[str]:
    lines = []
    for name, section in sections.items():
        lines += [(name, unit, why) for unit, why in section.get("failed", {}).items()]
        left = section.get("not_reached", [])
        why = section.get("why", "")
        if left:
            lines.append((name, f"{len(left)} units: {', '.join(left)}", f"not reached: {why}"))
        elif why:
            lines.append((name, "", why))
    if lines:
        yield "### Not measured"
        yield ""
        yield from table(("section", "what", "why"), lines)
