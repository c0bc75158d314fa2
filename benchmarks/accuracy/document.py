"""docs/ACCURACY.md: a section for each part, of which only those are written anew that were measured anew."""

from __future__ import annotations

from collections.abc import Iterator

from . import method, others, report, tool_tables
from .findings import Findings

TITLES = {
    "simulated": "Simulated NCCL jobs",
    "real": "Real gloo jobs",
    "logs": "Logs alone",
    "tools": "Other tools on the same cases",
}


def lines(found: Findings, before: str = "") -> Iterator[str]:
    """The whole document; `before` is the one that stands, whose other sections stay."""
    kept = _sections(before)
    yield "# Accuracy"
    yield ""
    yield "Written by `python -m benchmarks.accuracy`; do not edit. Each section says when it was measured, and on which"
    yield "seeds; the last one says how."
    yield ""
    yield "## Jobs that somebody else wrote"
    yield ""
    yield from others.section()
    for part, title in TITLES.items():
        if part not in found.made:
            yield from kept.get(title, [])
            continue
        yield f"## {title}"
        yield ""
        yield from tool_tables.section(found) if part == "tools" else report.section(found, part)
    yield "## How it is measured"
    yield ""
    yield from method.TEXT.splitlines()


def _sections(text: str) -> dict[str, list[str]]:
    """The lines of each section by its title, with the title's own."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in text.splitlines():
        if line.startswith("## "):
            title = line.removeprefix("## ")
        found.setdefault(title, []).append(line)
    return found
