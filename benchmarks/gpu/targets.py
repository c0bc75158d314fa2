"""What is asked of each figure, and whether it is met: pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]

MFU = 0.55  # of the measured peak of a bf16 product
BANDWIDTH = 0.85  # of the measured bandwidth of a copy
NOISE = 1.02  # a peer has to be faster by more than two measurements of the same differ

# Part of the device's name -> dense bf16 TFLOP/s by its maker's data sheet; the first that fits.
SPECIFICATIONS = (
    ("GH200", 989.0),
    ("H200", 989.0),
    ("H100 PCIe", 756.0),
    ("H100 NVL", 835.0),
    ("H100", 989.0),
    ("H800", 989.0),
    ("B200", 2250.0),
    ("A100", 312.0),
    ("A800", 312.0),
    ("L40S", 362.0),
    ("A10", 125.0),
)


def specified_tflops(device: str) -> float | None:
    """The data sheet's dense bf16 rate; None for a device that is not listed."""
    return next((rate for part, rate in SPECIFICATIONS if part in device), None)


@dataclass(frozen=True)
class Ceilings:
    """What this machine can do, as measured; None where that is missing."""

    device: str = ""
    tflops: float | None = None
    gb_per_s: float | None = None


def ceilings(rows: Iterable[Row]) -> Ceilings:
    """From the rows of the fingerprint."""
    device, products, copy = "", [], None
    for row in rows:
        if row["what"] == "name":
            device = str(row["value"])
        elif row["what"] == "copy":
            copy = row["gb_per_s"]
        elif "tflops" in row:
            products.append(row["tflops"])
    return Ceilings(device, max(products, default=None), copy)


def share(part: float, whole: float | None) -> float | None:
    """part / whole; None where the whole is not known."""
    return part / whole if whole else None


# ---------------------------------------------------------------------- kernels


def total_ms(row: Row) -> float:
    """Forward and backward: some libraries do in one what others do in the other."""
    return float(row["forward_ms"] + row["backward_ms"])


def bandwidth(row: Row, ceiling: Ceilings) -> float | None:
    """Share of the copy's bandwidth, by the bytes that cannot be avoided."""
    ms = total_ms(row)
    moved = row["forward_bytes"] + row["backward_bytes"]
    return share(moved / ms / 1e6, ceiling.gb_per_s) if ms else None


def arithmetic(row: Row, ceiling: Ceilings) -> float | None:
    """Share of the product's peak; None for a kernel without products."""
    done = row.get("forward_flops", 0.0) + row.get("backward_flops", 0.0)
    ms = total_ms(row)
    return share(done / ms / 1e9, ceiling.tflops) if done and ms else None


def is_right(row: Row) -> bool:
    """Whether its error is within its limit; NaN never is."""
    return bool(row["error"] <= row["limit"])


@dataclass(frozen=True)
class Verdict:
    """One kernel at one size: ours, the best other, and whether the target is met."""

    kernel: str
    size: str
    ours: str
    ms: float
    reached: float | None  # share of bandwidth, or of the product's peak
    peer: str
    peer_ms: float
    met: bool
    why: str


def kernel_verdicts(
    rows: Sequence[Row], ceiling: Ceilings, failed: Iterable[str] = ()
) -> list[Verdict]:
    """Each kernel at each size that was tried, in the order of the rows.

    Args:
        failed: "KERNEL SIZE FLAVOUR" of what has no row: ours is not replaced by another for that.
    """
    tables: dict[tuple[str, str], dict[str, Row | None]] = {}
    for row in rows:
        tables.setdefault((row["kernel"], row["size"]), {})[row["flavour"]] = row
    for unit in failed:
        words = unit.split(" ")
        if len(words) == 3:
            tables.setdefault((words[0], words[1]), {})[words[2]] = None
    return [_verdict(kernel, size, by, ceiling) for (kernel, size), by in tables.items()]


def _verdict(kernel: str, size: str, by: dict[str, Row | None], ceiling: Ceilings) -> Verdict:
    # The trainer takes torch's attention, and Triton's kernels where there are some.
    order = ("torch", "triton") if kernel == "attention" else ("triton", "torch")
    name = next((flavour for flavour in order if flavour in by), "reference")
    others = {f: total_ms(row) for f, row in by.items() if row and f != name and is_right(row)}
    peer = min(others, key=lambda f: others[f], default="")
    peer_ms = others.get(peer, math.nan)
    mine = by.get(name)
    if mine is None:
        return Verdict(
            kernel=kernel,
            size=size,
            ours=name,
            ms=math.nan,
            reached=None,
            peer=peer,
            peer_ms=peer_ms,
            met=False,
            why="not measured",
        )
    ms, reached = total_ms(mine), arithmetic(mine, ceiling)
    if reached is None:
        reached = bandwidth(mine, ceiling)
    wide = reached is not None and reached >= BANDWIDTH
    fast = bool(peer) and ms <= NOISE * peer_ms
    if not is_right(mine):
        met, why = False, f"wrong: error {mine['error']:.1e} above {mine['limit']:.0e}"
    elif wide or fast:
        met, why = True, ""
    else:
        met, why = False, f"{peer} is {ms / peer_ms:.2f} times as fast" if peer else "too slow"
    return Verdict(
        kernel=kernel,
        size=size,
        ours=name,
        ms=ms,
        reached=reached,
        peer=peer,
        peer_ms=peer_ms,
        met=met,
        why=why,
    )
