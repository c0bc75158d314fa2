"""LateArrivals as a person reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..text.durations import duration
from ..text.plain import size_words
from ..text.printable import cleaned
from .late_arrivals import LateArrivals

_RANKS, _STEPS, _GROUPS = 12, 12, 12


def render(found: LateArrivals, console: Console) -> None:
    """One screen: the sentence, then ranks, steps and groups, the worst first."""
    found = cleaned(found)
    if found.hang is not None:
        console.print(Text(found.hang.words(), style="bold red"), soft_wrap=True)
        console.print(
            Text(
                "For the cause run hangdoctor dump, or hangdoctor diagnose on a bundle. The table is about the steps that finished before:"
            )
        )
    console.print(Text(headline(found), style="bold"), soft_wrap=True)
    for table in (_ranks(found), _steps(found), _groups(found)):
        console.print()
        console.print(table)
    console.print()
    if len(found.clocks) > 1:
        for line in found.clocks:
            console.print(Text(line, style="dim"), soft_wrap=True)
    for note in found.notes:
        console.print(Text(f"note: {note}", style="yellow"), soft_wrap=True)


def headline(found: LateArrivals) -> str:
    """Which rank made the others wait, if one did, as a share of the time of the steps."""
    worst = max(found.ranks, key=lambda r: r.held_up_ms, default=None)
    if not found.groups:
        return f"{len(found.ranks)} ranks: nothing to compare; there is no operation that two ranks both recorded from start to end."
    if not found.steps or worst is None or worst.held_up_ms <= 0 or not found.elapsed_ms:
        return f"{len(found.ranks)} ranks, {len(found.steps)} steps: no rank made the others wait."
    share = worst.held_up_ms / found.elapsed_ms
    where = f" (node {worst.node})" if worst.node else ""
    last = f"{worst.steps_last} of them" if worst.steps_last != 1 else "one of them"
    told = f"Rank {worst.rank}{where} made the others wait most: {_about(worst.held_up_ms)}, {percent(share)} of the time of {len(found.steps)} steps, and arrived last in {last}."
    following = max(
        (r for r in found.ranks if r is not worst), key=lambda r: r.held_up_ms, default=worst
    )
    if following is not worst and following.held_up_ms > 0.5 * worst.held_up_ms:
        told += f" Rank {following.rank} is close: {_about(following.held_up_ms)}, last in {following.steps_last}."
    return told


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 2),
    )
    for column in columns:
        table.add_column(column, justify="left" if column in ("node", "group") else "right")
    for row in rows:
        table.add_row(*row)
    return table


_RANK_COLUMNS = ("rank", "made others wait", "last in", "waited", "communication", "node")


def _ranks(found: LateArrivals) -> Table:
    shown = sorted(found.ranks, key=lambda r: -r.held_up_ms)[:_RANKS]
    rows = [
        (
            str(r.rank),
            seconds(r.held_up_ms),
            f"{r.steps_last} step{'' if r.steps_last == 1 else 's'}",
            seconds(r.waited_ms),
            percent(r.communication),
            r.node,
        )
        for r in shown
    ]
    return _table(_title("ranks", len(shown), len(found.ranks)), _RANK_COLUMNS, rows)


_STEP_COLUMNS = ("step", "took", "last", "made others wait", "longest wait", "communication")


def _steps(found: LateArrivals) -> Table:
    shown = sorted(found.steps, key=lambda s: -s.held_up_ms)[:_STEPS]
    rows = [
        (
            str(s.step),
            seconds(s.duration_ms),
            _or_dash(s.last),
            seconds(s.held_up_ms),
            seconds(s.waited_ms),
            percent(s.communication),
        )
        for s in shown
    ]
    return _table(_title("steps", len(shown), len(found.steps)), _STEP_COLUMNS, rows)


_GROUP_COLUMNS = (
    "operations",
    "waited, all members",
    "moving data",
    "bytes",
    "last",
    "made others wait",
    "group",
)


def _groups(found: LateArrivals) -> Table:
    shown = found.groups[:_GROUPS]
    rows = [
        (
            str(g.operations),
            seconds(g.waited_ms),
            seconds(g.moving_ms),
            size_words(g.bytes),
            _or_dash(g.last),
            seconds(g.held_up_ms),
            g.group if len(g.group) <= 50 else g.group[:49] + "…",
        )
        for g in shown
    ]
    return _table(_title("groups", len(shown), len(found.groups)), _GROUP_COLUMNS, rows)


def _or_dash(rank: int) -> str:
    return str(rank) if rank >= 0 else "-"


def _title(what: str, shown: int, total: int) -> str:
    return what if shown == total else f"{what}, the worst {shown} of {total}"


def _about(ms: float) -> str:
    """In a sentence: ``41 s``, ``40 ms``."""
    return duration(ms / 1000) if ms >= 1000 else f"{ms:.0f} ms"


def percent(share: float) -> str:
    """``61 %``."""
    return f"{share:.0%}".replace("%", " %")


def seconds(ms: float) -> str:
    """``1.25 s``, ``40.0 ms``."""
    return f"{ms / 1000:.2f} s" if ms >= 1000 else f"{ms:.1f} ms"
