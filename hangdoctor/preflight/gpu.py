"""NVIDIA's GPUs as nvidia-smi lists them; no library of NVIDIA's is loaded."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

from msgspec import Struct

from ..text.ranges import number_in

_QUERY = "index,name,driver_version,memory.used,ecc.errors.uncorrected.volatile.total"
_PATIENCE_S = 10.0  # a driver in trouble does not answer at all


class Gpu(Struct):
    index: int
    name: str
    driver: str
    used_mb: int
    uncorrected: int  # memory errors since the driver was loaded; 0 where the GPU counts none


class Gpus(Struct):
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
