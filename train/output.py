"""Results of the commands beside the trainer: to a file, or to stdout for `-`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_lines(target: str, lines: Iterable[str]) -> None:
    """Write each line with its end."""
    text = "".join(f"{line}\n" for line in lines)
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)


def write_json(target: str, plain: Any) -> None:
    """Write plain data, indented."""
    write_lines(target, [json.dumps(plain, indent=1)])
