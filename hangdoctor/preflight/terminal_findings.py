"""Preflight's findings on a terminal: the verdict first, then what is to be done, then what is in
order.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape

from ..text.plural import count
from ..text.printable import cleaned
from ..text.ranges import format_hosts
from .collectives.speed_table import speed_table
from .compare import Preflight

_COLOURS = {"fail": "bold red", "warn": "bold yellow", "unknown": "bold magenta", "ok": "green"}
_WORDS = {"fail": "FAIL", "warn": "WARN", "unknown": "?", "ok": "ok"}
_NAMED = 6  # of what was not tested
_SENTENCES = {
    "fail": "Not ready: a job started here would fail, or a hang could not be diagnosed.",
    "warn": "Ready, with warnings.",
    "unknown": "Could not tell: some checks could not be made.",
    "ok": "Ready.",
}


def render(found: Preflight, console: Console) -> None:
    """Print the result of all nodes."""
    for line in lines(found):
        console.print(line, highlight=False, soft_wrap=True)


def lines(found: Preflight) -> Iterator[str]:
    """With rich's markup; text from the nodes is escaped."""
    found = cleaned(found)
    colour = _COLOURS[found.verdict]
    nodes = f"{count(len(found.nodes), 'node')} {format_hosts(found.nodes)}"
    yield f"[{colour}]{_WORDS[found.verdict]}[/] {escape(_sentence(found))} [dim]{escape(nodes)}[/]"
    yield ""
    width = max([len(f.check) for f in found.findings] + [5])
    every = set(found.nodes)
    for finding in found.findings:
        where = "" if set(finding.nodes) >= every else f"{format_hosts(finding.nodes)}: "
        yield f"[{_COLOURS[finding.verdict]}]{_WORDS[finding.verdict]:<4}[/]  {escape(f'{finding.check:<{width}}')}  {escape(where + finding.reading)}"
        if finding.advice:
            yield f"      {'':<{width}}  [dim]do: {escape(finding.advice)}[/]"
    if found.collectives is not None:
        yield from (escape(line) for line in speed_table(found.collectives))


def _sentence(found: Preflight) -> str:
    """The verdict in words, with what the tests of the network left open."""
    left = found.collectives.untested if found.collectives is not None else []
    if not left:
        return _SENTENCES[found.verdict]
    named = ", ".join(left[:_NAMED])
    more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    if found.verdict == "unknown":
        return f"Could not tell: not tested: {named}{more}."
    return f"{_SENTENCES[found.verdict]} Not tested: {named}{more}."
