"""What a run of the benchmark found, as it is kept in a file: results, and how each part was measured."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import msgspec
from msgspec import Struct

from hangdoctor._version import __version__
from hangdoctor.text.ranges import format_ranks

from .score import Result
from .simulated import Size


class Made(Struct):
    """How one part was measured; each part of the document shows its own."""

    date: str
    versions: str
    seeds: str
    took_s: float
    notes: list[str] = []


class Findings(Struct):
    """Everything that one or several runs found."""

    results: list[Result] = []
    tools: list[Result] = []  # of `benchmarks.accuracy.tools`, whose parts are the tools
    sizes: list[Size] = []
    made: dict[str, Made] = {}  # by part: simulated, real, logs, tools


def made_now(seeds: Sequence[int], took_s: float, notes: Sequence[str] = ()) -> Made:
    """A part that was measured just now."""
    versions = f"hangdoctor {__version__}, Python {platform.python_version()}, torch {_torch()}"
    return Made(time.strftime("%Y-%m-%d"), versions, format_ranks(seeds), took_s, list(notes))


def _torch() -> str:
    module = sys.modules.get("torch")
    if module is not None:
        return str(module.__version__)
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "not installed"


def read(file: Path) -> Findings:
    """The findings that a run kept.

    Raises:
        msgspec.DecodeError: the file has none.
    """
    return msgspec.json.decode(file.read_bytes(), type=Findings)


def join(parts: Sequence[Findings]) -> Findings:
    """The findings of several runs as one."""
    made: dict[str, Made] = {}
    for name, one in ((name, one) for p in parts for name, one in p.made.items()):
        made[name] = _joined(made[name], one) if name in made else one
    return Findings(
        [r for p in parts for r in p.results],
        [r for p in parts for r in p.tools],
        [s for p in parts for s in p.sizes],
        made,
    )


def _joined(one: Made, other: Made) -> Made:
    """Of a part that was measured in two runs."""
    return Made(
        _both(one.date, other.date, " and "),
        _both(one.versions, other.versions, " and "),
        _both(one.seeds, other.seeds, ","),
        one.took_s + other.took_s,
        list(dict.fromkeys([*one.notes, *other.notes])),
    )


def _both(one: str, other: str, between: str) -> str:
    """Each of the two once; "" is none."""
    parts = [part for text in (one, other) for part in text.split(between) if part]
    return between.join(dict.fromkeys(parts))
