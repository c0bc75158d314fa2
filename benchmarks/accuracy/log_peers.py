"""Other analyzers of job logs on the same logs, and which ranks each of them names.

torchelastic  the rank of its table's "Root Cause (first observed failure)"; the last table of the log counts. It names
              nobody where the log has no such table.
nvrx          nvidia-resiliency-ext's restart agent, its stage without a language model: the rank of its first cause.
              HANGDOCTOR_NVRX names its folder: `python -m benchmarks.accuracy.peers --install-nvrx FOLDER`.

The kind of fault is not asked for. Naming nobody is right where nothing shows who it was.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hangdoctor.text.ranges import number_in

from .peers import NVRX_FOLDER

PEERS = ("torchelastic's first failure", "nvidia-resiliency-ext, log stage")
_ROOT = re.compile(r"Root Cause \(first observed failure\):(.{0,2000}?)(?:\n=|\Z)", re.DOTALL)
_RANK = re.compile(r"rank\s*: (\d{1,7}) \(local_rank")
_ROOT_PATH = Path(__file__).parents[2]
Named = list[int] | None  # None: not measured


@dataclass
class Verdicts:
    """What each peer names of one piece of evidence."""

    torchelastic: Named
    nvrx: Named

    def of(self, peer: str) -> Named:
        """By the peer's name."""
        return self.torchelastic if peer == PEERS[0] else self.nvrx


def texts_of(evidence: Path) -> str:
    """All text files of a piece, one after the other by name."""
    files = (
        sorted(p for p in evidence.rglob("*") if p.is_file()) if evidence.is_dir() else [evidence]
    )
    return "\n".join(f.read_text("utf-8", "replace") for f in files)


def torchelastic(text: str) -> list[int]:
    """The rank of the last table."""
    tables = _ROOT.findall(text)
    rank = _RANK.search(tables[-1]) if tables else None
    return [int(rank[1])] if rank else []


def nvrx(texts: Sequence[str], timeout_s: float = 300.0) -> list[Named]:
    """What the log stage names in each text; all None where it is not here."""
    source = os.environ.get(NVRX_FOLDER, "")
    if not Path(source, "nvidia_resiliency_ext").is_dir():
        return [None] * len(texts)
    with tempfile.TemporaryDirectory(prefix="logs-") as name:
        files = [Path(name, f"{number}.log") for number in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.accuracy.nvrx_log_stage", *map(str, files)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd=_ROOT_PATH,
            env={**os.environ, "PYTHONPATH": f"{_ROOT_PATH}:{source}"},
        )
    lines = done.stdout.splitlines()
    if len(lines) != len(texts):
        raise RuntimeError(f"the log stage ended early: {done.stderr.strip()[-300:]}")
    return [_rank(json.loads(line)) for line in lines]


def _rank(found: dict[str, object]) -> list[int]:
    number = number_in(str(found.get("rank") or ""))
    return [number] if number >= 0 else []


def verdicts(texts: Sequence[str]) -> list[Verdicts]:
    """Both peers on some logs."""
    return [
        Verdicts(torchelastic(text), theirs)
        for text, theirs in zip(texts, nvrx(texts), strict=True)
    ]
