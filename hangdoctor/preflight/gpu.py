"""NVIDIA's GPUs as nvidia-smi lists them; no library of NVIDIA's is loaded."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

from msgspec import Struct

from ..text.ranges import number_in
from .readings import Check, Verdict

_QUERY = "index,name,driver_version,memory.used,ecc.errors.uncorrected.volatile.total"
BUSY_MB = 1024  # of memory, in use before the job
_PATIENCE_S = 10.0  # a driver in trouble does not answer at all


class Gpu(Struct):
    """One GPU, as nvidia-smi lists it."""

    index: int
    name: str
    driver: str
    used_mb: int
    uncorrected: int  # memory errors since the driver was loaded; 0 where the GPU counts none


class Gpus(Struct):
    """All GPUs of a node."""

    rows: list[Gpu] = []

    def facts(self) -> dict[str, str]:
        """Kinds and driver, for a comparison between nodes."""
        kinds = Counter(g.name for g in self.rows)
        said = {"GPUs": ", ".join(f"{n} x {name}" for name, n in sorted(kinds.items())) or "none"}
        return said | ({"GPU driver": self.rows[0].driver} if self.rows else {})


def read(gpus: Gpus) -> str:
    """Fill `gpus`; why there are none, "" where there are."""
    program = shutil.which("nvidia-smi")
    if program is None:
        devices = len(list(Path("/dev").glob("nvidia[0-9]*")))
        return (
            f"{devices} devices, but no nvidia-smi"
            if devices
            else "no NVIDIA GPU and no nvidia-smi"
        )
    try:
        done = subprocess.run(
            [program, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        return f"nvidia-smi did not answer within {_PATIENCE_S:.0f} s"
    if done.returncode:
        return f"nvidia-smi failed: {(done.stdout + done.stderr).strip()[:200] or done.returncode}"
    gpus.rows = parse(done.stdout)
    return "" if gpus.rows else "nvidia-smi lists no GPU"


def parse(text: str) -> list[Gpu]:
    """Rows of ``--query-gpu`` as csv,noheader,nounits; what a GPU does not know is ``[N/A]``."""
    rows = []
    for line in text.splitlines():
        cells = [c.strip() for c in line.split(",")]
        if len(cells) == 5 and number_in(cells[0]) >= 0:
            used, uncorrected = (number_in(c, 0) for c in cells[3:])
            rows.append(Gpu(number_in(cells[0]), cells[1], cells[2], used, uncorrected=uncorrected))
    return rows


def check_gpus(expected: int, gpus: Gpus) -> Check:
    """NVIDIA's GPUs, by nvidia-smi: their number, errors, and whether someone uses them already."""
    why_not = read(gpus)
    if why_not:
        if expected == 0:
            return Check("gpus", "ok", f"none, as expected ({why_not})")
        verdict: Verdict = "fail" if expected > 0 else "unknown"
        return Check(
            "gpus",
            verdict,
            why_not,
            "If the node should have none: --gpus 0. Otherwise run nvidia-smi by hand.",
        )
    if expected >= 0 and len(gpus.rows) != expected:
        return Check(
            "gpus",
            "fail",
            f"{len(gpus.rows)} GPUs, expected {expected}",
            "nvidia-smi -L; dmesg | grep -i xid",
        )
    broken = [g for g in gpus.rows if g.uncorrected > 0]
    if broken:
        said = ", ".join(f"GPU {g.index}: {g.uncorrected}" for g in broken)
        return Check(
            "gpus",
            "fail",
            f"uncorrected memory errors ({said})",
            "Drain the node and reset or replace the GPU.",
        )
    busy = [g for g in gpus.rows if g.used_mb > BUSY_MB]
    if busy:
        said = ", ".join(f"GPU {g.index}: {g.used_mb} MB" for g in busy)
        return Check(
            "gpus",
            "warn",
            f"memory in use before the job ({said})",
            "Is it a process of an earlier job? nvidia-smi shows its pid.",
        )
    return Check("gpus", "ok", gpus.facts()["GPUs"])
