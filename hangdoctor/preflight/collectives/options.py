"""How the tests of a network are made."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from ...errors import UsageError

_SIZE = re.compile(r"(\d{1,6})([kKmMgG]?)[bB]?")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_MOST = 8  # sizes in one test
_START_S = 60.0
_LARGEST = 16 << 30  # bytes


class CollectiveOptions(Struct, frozen=True):
    """How to test."""

    sizes: list[int]  # bytes
    rounds: int = 7  # of pairs
    seconds: float = 30.0  # for each test
    slow_below: float = 0.5  # share of the speed of good pairs
    history: Path = Path()  # folder

    @property
    def start_seconds(self) -> float:
        """Seconds for a node to answer and to import torch."""
        return max(_START_S, self.seconds)


def sizes_in(text: str) -> list[int]:
    """``64k,1M`` in bytes, in ascending order.

    Raises:
        UsageError: it is no such list.
    """
    matches = [_SIZE.fullmatch(word.strip()) for word in text.split(",")]
    sizes = sorted({int(m[1]) * _UNITS[m[2].lower()] for m in matches if m is not None})
    if None in matches or not 0 < len(sizes) <= _MOST or not 4 <= sizes[0] <= sizes[-1] <= _LARGEST:
        raise UsageError(
            f"{text!r} is not a list of sizes",
            f"Give up to {_MOST} sizes from 4 bytes to 16G, such as --sizes 64k,1M,16M.",
        )
    return sizes
