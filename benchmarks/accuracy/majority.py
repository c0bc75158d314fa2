"""A baseline that is no product: who has another stack than most.

What a person does who runs `py-spy dump` on every rank and looks for the one that differs: the main
threads' stacks of the last sample are compared, and the ranks that are not in the most frequent one
are named; where two are as frequent, no one is. Readings: stacks with their lines, and functions
alone. Which process is which rank is read from the bundle.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
from msgspec import Struct


class _Frame(Struct):
    name: str
    file: str
    line: int = 0


class _Thread(Struct):
    name: str | None = None
    frames: list[_Frame] = []


class _Rank(Struct):
    rank: int
    pid: int


class _Node(Struct):
    node: str
    ranks: list[_Rank] = []


class _Capture(Struct):
    nodes: list[_Node]


Stack = tuple[object, ...]


def readings(bundle: Path) -> list[list[int]]:
    """The ranks that differ, by lines and by functions."""
    stacks = stacks_of(bundle)
    by_line = {rank: tuple((f.file, f.name, f.line) for f in of) for rank, of in stacks.items()}
    by_function = {rank: tuple((f.file, f.name) for f in of) for rank, of in stacks.items()}
    return [differing(by_line), differing(by_function)]


def differing(stacks: dict[int, Stack]) -> list[int]:
    """The ranks without the most frequent stack; none where no single one is the most frequent."""
    most = Counter(stacks.values()).most_common(2)
    if not most or (len(most) == 2 and most[0][1] == most[1][1]):
        return []
    return sorted(rank for rank, stack in stacks.items() if stack != most[0][0])


def stacks_of(bundle: Path) -> dict[int, list[_Frame]]:
    """The main thread's frames of each rank that py-spy could read, of its last sample."""
    capture = msgspec.json.decode((bundle / "capture.json").read_bytes(), type=_Capture)
    found = {}
    for node in capture.nodes:
        for rank in node.ranks:
            samples = sorted((bundle / "raw" / node.node).glob(f"{rank.pid}.*.json"))
            if samples:
                found[rank.rank] = _main_thread(samples[-1])
    return found


def _main_thread(sample: Path) -> list[_Frame]:
    threads = msgspec.json.decode(sample.read_bytes(), type=list[_Thread])
    return next((t.frames for t in threads if t.name == "MainThread"), [])
