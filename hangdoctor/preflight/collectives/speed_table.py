"""The tests of the network as a table: who took part, bandwidth by size, what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...text.plural import count
from ...text.ranges import format_hosts
from .report import Collectives
from .running_trial import size_text
from .trial import Result

_MOST_ROWS = 40


def speed_table(data: Collectives) -> Iterator[str]:
    """Lines; what failed or was slow first where there are too many."""
    if not data.tests:
        return
    yield ""
    yield f"all_reduce by {data.backend}, bus bandwidth in GB/s"
    shown = _chosen(data.tests)
    rows = [["stage", "nodes", *(size_text(size) for size in data.sizes), "seconds", "result"]]
    rows += [_row(result, data.sizes) for result in shown]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(map(str.ljust, row, widths)).rstrip()
    if len(data.tests) > len(shown):
        yield f"  and {count(len(data.tests) - len(shown), 'more test')}: --json FILE has all"
    if data.leave_out:
        yield data.leave_out


def _chosen(tests: Sequence[Result]) -> Sequence[Result]:
    if len(tests) <= _MOST_ROWS:
        return tests
    ordered = sorted(tests, key=lambda r: (not r.bad, -len(r.units)))
    return ordered[:_MOST_ROWS]


def _row(result: Result, sizes: Sequence[int]) -> list[str]:
    speeds = [f"{result.speeds[s]:.3g}" if s in result.speeds else "-" for s in sizes]
    nodes = format_hosts(result.units) if len(result.units) > 2 else "-".join(result.units)
    return [result.stage, nodes, *speeds, f"{result.seconds:.1f}", result.status]
