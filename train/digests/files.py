"""A file of JSON lines a rank and moment, one line a tensor."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..options import ConfigError
from .fingerprint import fingerprints
from .parts import parts

_NAME = re.compile(r"^iteration_(\d+)_(before|after)\.rank(\d+)\.jsonl$")
Line = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """When and where: `when` is before or after the iteration; `at` holds the rank's coordinates by
    axis (pp, dp, tp).
    """

    iteration: int
    when: str
    rank: int
    at: Mapping[str, int]

    @property
    def file(self) -> str:
        """The file's name."""
        return f"iteration_{self.iteration:07d}_{self.when}.rank{self.rank:05d}.jsonl"


def write(
    folder: str | Path,
    place: Place,
    module: torch.nn.Module,
    optimizer: Any = None,
    random: Mapping[str, torch.Tensor] | None = None,
) -> Path:
    """Write what this rank holds; returns the file, which is whole or not there."""
    found = list(parts(module, optimizer, random))
    lines = []
    for part, made in zip(found, fingerprints([p.tensor for p in found]), strict=True):
        line = {
            "kind": part.kind,
            "name": part.name,
            **place.at,
            "split": part.split,
            "start": part.start,
            "shape": list(part.tensor.shape),
            "dtype": str(part.tensor.dtype).removeprefix("torch."),
            "hash": made.hash,
            "norm": made.norm,
            "largest": made.largest,
        }
        lines.append(json.dumps(line) + "\n")
    target = Path(folder) / place.file
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.write_text("".join(lines))
    partial.replace(target)
    return target


def read(folder: Path, iteration: int, when: str) -> list[Line]:
    """The lines of all ranks at one moment.

    Raises:
        ConfigError: there are none, or a file is not one of ours; it says which moments there are.
    """
    moments: dict[tuple[int, str], list[Path]] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        match = _NAME.match(path.name)
        if match:
            moments.setdefault((int(match[1]), match[2]), []).append(path)
    if (iteration, when) not in moments:
        known = ", ".join(f"{w} {n}" for n, w in sorted(moments)) or "none"
        raise ConfigError(f"{folder} has no digests {when} iteration {iteration}; it has: {known}")
    lines: list[Line] = []
    for path in moments[iteration, when]:
        try:
            lines += [json.loads(text) for text in path.read_text().splitlines()]
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from error
    return lines
