"""Tables of any tools on the same cases: on the terminal and in docs/ACCURACY.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from . import report
from .findings import Findings
from .known_tools import KNOWN, NOT_MEASURED
from .method import COMPARED
from .score import Result, Tally
from .tables import percent, reliability, table


def section(found: Findings) -> Iterator[str]:
    """Of docs/ACCURACY.md: the tables, and what their rows and columns are."""
    yield from report.how(found.made["tools"])
    yield from COMPARED.splitlines()
    for name in dict.fromkeys(r.part for r in found.tools):
        if name in KNOWN:
            yield f"- {name}: {KNOWN[name].what}"
    yield ""
    yield from tables(found.tools, "###")


def tables(results: Sequence[Result], level: str = "##") -> Iterator[str]:
    """Markdown: by evidence, by framework, and how often a stated confidence is right."""
    names = list(dict.fromkeys(r.part for r in results))
    yield f"{level} By evidence"
    yield ""
    head = ["evidence", "tool", "cases", "exact", "a victim named", "no one named"]
    yield from table([*head, "kind right", "seconds, median"], _by_evidence(results, names))
    yield f"{level} By evidence and framework"
    yield ""
    yield "Exact, and after the stroke the share with a victim named."
    yield ""
    yield from table(["evidence (framework)", "cases", *names], _by_framework(results, names))
    for name in names:
        said = [s for r in results if r.part == name for s in r.said]
        if said:
            yield f"{level} How often a confidence is right: {name}"
            yield ""
            yield from reliability(said)


def _by_evidence(results: Sequence[Result], names: Iterable[str]) -> Iterator[list[str]]:
    for evidence in sorted({_evidence(r.mode) for r in results}):
        for name in names:
            some = [r for r in results if _evidence(r.mode) == evidence and r.part == name]
            if some:
                yield [evidence, name, *_row(some)]


def _evidence(mode: str) -> str:
    return mode.partition(" (")[0]


def _row(some: Sequence[Result]) -> list[str]:
    read = [r for r in some if r.status != NOT_MEASURED]
    if not read:
        return [str(len(some)), *[NOT_MEASURED] * 2, "-", "-", "-"]
    tally = Tally.of(read)
    silent = sum(not any(ranks for _, ranks in r.named) for r in read) / len(read)
    middle = sorted(r.took_s for r in read)[len(read) // 2]
    shares = [percent(s) for s in (tally.exact, tally.victim, silent)]
    kind = percent(tally.kind) if all(r.kind_said for r in read) else "-"
    return [str(len(read)), *shares, kind, f"{middle:.2f}"]


def _by_framework(results: Sequence[Result], names: Sequence[str]) -> Iterator[list[str]]:
    for mode in sorted({r.mode for r in results}):
        by_tool = [[r for r in results if r.mode == mode and r.part == name] for name in names]
        cases = max(len(some) for some in by_tool)
        yield [mode, str(cases), *(_cell(some) for some in by_tool)]


def _cell(some: Sequence[Result]) -> str:
    if not some:
        return "-"
    read = [r for r in some if r.status != NOT_MEASURED]
    tally = Tally.of(read)
    return f"{percent(tally.exact)} / {percent(tally.victim)}" if read else NOT_MEASURED
