"""The heat map rank x step as SVG: how long the others waited for a rank, on one orange scale that
every eye can order.

Lightness falls with the value, so that it also reads in grey and with any colour-blindness. Many
ranks or steps are joined into cells that show their largest value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from ..text.durations import duration
from .late_arrivals import LateArrivals

_WIDTH, _ROOM = 1180, 900  # of the picture; of the plot
_LEFT, _TOP = 110, 92
_BAR = 90  # the sums at the right
_TITLES = 3000  # cells up to which each gets a text to hover over
_CLASSES = 7
_LIGHT, _MIDDLE, _DARK = (0xFF, 0xF3, 0xDC), (0xE6, 0x8A, 0x00), (0x3B, 0x10, 0x00)
_NOTHING, _CALM, _INK, _FAINT = "#d9dde2", "#ffffff", "#1d2733", "#5b6673"


def svg(found: LateArrivals) -> bytes:
    """The picture; text in it is text, and it needs nothing from outside."""
    ranks = [r.rank for r in found.ranks]
    steps = [s.step for s in found.steps]
    rows, row_labels = _joined_rows(found.held_up_ms, ranks, _ROOM // 4)
    cells, column_labels = _joined_columns(rows, steps, _ROOM // 3)
    limits = _limits([v for row in cells for v in row if v])
    high = max(4.0, min(26.0, 640 / max(1, len(cells))))
    if len(cells) * high > 720:
        high = 720 / len(cells)
    wide = min(30.0, _ROOM / max(1, len(column_labels)))
    plot_w, plot_h = wide * len(column_labels), high * len(cells)
    height = _TOP + plot_h + 118
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" height="{height:.0f}" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="{_INK}">',
        f'<rect width="{_WIDTH}" height="{height:.0f}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="32" font-size="18" font-weight="600">How long the others waited for each rank, step by step</text>',
        f'<text x="{_LEFT}" y="54" fill="{_FAINT}">{escape(_subtitle(found, len(cells), len(column_labels)))}</text>',
        f'<rect x="{_LEFT}" y="{_TOP}" width="{plot_w:.1f}" height="{plot_h:.1f}" fill="{_CALM}"/>',
        *_cells(cells, limits, wide, high),
        *_titles(cells, wide, high, row_labels, column_labels),
        f'<rect x="{_LEFT}" y="{_TOP}" width="{plot_w:.1f}" height="{plot_h:.1f}" fill="none" stroke="{_FAINT}" stroke-width="0.7"/>',
        *_axes(row_labels, column_labels, wide, high, plot_w=plot_w, plot_h=plot_h),
        *_sums(found, row_labels, high, _LEFT + plot_w + 14),
        *_legend(limits, any(v is None for row in cells for v in row), _TOP + plot_h + 78),
        "</svg>\n",
    ]
    return "\n".join(parts).encode()


def _subtitle(found: LateArrivals, rows: int, columns: int) -> str:
    joined = [
        f"{total} {what} in {shown} {where}, each cell its largest value"
        for what, total, shown, where in (
            ("ranks", len(found.ranks), rows, "rows"),
            ("steps", len(found.steps), columns, "columns"),
        )
        if shown < total
    ]
    job = f"{found.job}: " if found.job else ""
    return f"{job}time that the other ranks waited for this rank in this step" + "".join(
        f"; {j}" for j in joined
    )


# --------------------------------------------------------------------------- joining


def _largest(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return max(known) if known else None


def _chunks(labels: Sequence[int], most: int) -> list[tuple[int, int]]:
    """(from, to) of at most `most` equal chunks."""
    size = 1 << max(
        0, math.ceil(math.log2(max(1, len(labels)) / most))
    )  # a power of two, as nodes and groups are
    return [(i, min(i + size, len(labels))) for i in range(0, len(labels), size)]


def _joined_rows(
    values: Sequence[Sequence[float | None]], labels: Sequence[int], most: int
) -> tuple[list[list[float | None]], list[tuple[int, int]]]:
    chunks = _chunks(labels, most)
    rows = [[_largest(column) for column in zip(*values[a:b], strict=True)] for a, b in chunks]
    return rows, [(labels[a], labels[b - 1]) for a, b in chunks]


def _joined_columns(
    rows: list[list[float | None]], labels: Sequence[int], most: int
) -> tuple[list[list[float | None]], list[tuple[int, int]]]:
    chunks = _chunks(labels, most)
    return [[_largest(row[a:b]) for a, b in chunks] for row in rows], [
        (labels[a], labels[b - 1]) for a, b in chunks
    ]


# --------------------------------------------------------------------------- colours


def _limits(values: list[float]) -> list[float]:
    """Lower limits of the classes in milliseconds, 1-3-10 down from the largest value, ascending."""
    if not values:
        return []
    exponent = math.floor(math.log10(max(values)))
    top = 10.0**exponent * (3 if max(values) >= 3 * 10.0**exponent else 1)
    found = [top]
    while len(found) < _CLASSES:
        last = found[0]
        digit = round(last / 10 ** math.floor(math.log10(last) + 1e-9))
        found.insert(0, last / 3 if digit == 3 else last * 0.3)
    return [limit for limit in found if limit >= 0.0099]


def _colour(n: int, classes: int) -> str:
    """The n-th of N classes, light to dark."""
    at = (n + 0.6) / classes
    one, other, share = (
        (_LIGHT, _MIDDLE, at / 0.5) if at < 0.5 else (_MIDDLE, _DARK, (at - 0.5) / 0.5)
    )
    return "#" + "".join(
        f"{round(a + (b - a) * min(1.0, share)):02x}" for a, b in zip(one, other, strict=True)
    )


def _class(value: float | None, limits: list[float]) -> int:
    """-2 nothing known, -1 below the first limit, else the class."""
    if value is None:
        return -2
    return sum(value >= limit for limit in limits) - 1


def _cells(
    cells: list[list[float | None]],
    limits: list[float],
    wide: float,
    high: float,
) -> list[str]:
    """One path a colour: a run of equal cells is one rectangle of it."""
    paths: dict[int, list[str]] = {}
    gap = 0.6 if min(wide, high) > 8 else 0.0
    for y, row in enumerate(cells):
        x = 0
        while x < len(row):
            kind = _class(row[x], limits)
            end = x + 1
            while end < len(row) and not gap and _class(row[end], limits) == kind:
                end += 1
            left, top = _LEFT + x * wide + gap / 2, _TOP + y * high + gap / 2
            across, down = (end - x) * wide - gap, high - gap
            if kind != -1:
                paths.setdefault(kind, []).append(
                    f"M{left:.2f} {top:.2f}h{across:.2f}v{down:.2f}h-{across:.2f}z"
                )
            x = end
    drawn = []
    for kind in sorted(paths):
        fill = _NOTHING if kind == -2 else _colour(kind, len(limits))
        drawn.append(f'<path fill="{fill}" d="{"".join(paths[kind])}"/>')
    return drawn


def _titles(
    cells: list[list[float | None]],
    wide: float,
    high: float,
    rows: list[tuple[int, int]],
    columns: list[tuple[int, int]],
) -> list[str]:
    """What a cell shows when the pointer is on it; of a large map none."""
    if sum(map(len, cells)) > _TITLES:
        return []
    size = f'width="{wide:.1f}" height="{high:.1f}"'
    titles = []
    for y, row in enumerate(cells):
        for x, value in enumerate(row):
            says = "no operations" if value is None else _ms(value)
            at = f'x="{_LEFT + x * wide:.1f}" y="{_TOP + y * high:.1f}"'
            titles.append(
                f'<rect {at} {size} fill-opacity="0">'
                f"<title>rank {_span(rows[y])}, step {_span(columns[x])}: {says}</title></rect>"
            )
    return titles


# --------------------------------------------------------------------------- around the plot


def _axes(
    rows: list[tuple[int, int]],
    columns: list[tuple[int, int]],
    wide: float,
    high: float,
    plot_w: float,
    plot_h: float,
) -> list[str]:
    parts = []
    for n in _ticks(len(rows), max(1, math.ceil(16 / high))):
        y = _TOP + (n + 0.5) * high
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{rows[n][0]}</text>')
    widest = max((len(str(c[0])) for c in columns), default=1)
    for n in _ticks(len(columns), max(1, math.ceil((widest * 8 + 14) / wide))):
        x = _LEFT + (n + 0.5) * wide
        parts.append(
            f'<text x="{x:.1f}" y="{_TOP + plot_h + 17:.1f}" text-anchor="middle">{columns[n][0]}</text>'
        )
    middle = _TOP + plot_h / 2
    parts.append(
        f'<text x="{_LEFT + plot_w / 2:.1f}" y="{_TOP + plot_h + 38:.1f}" text-anchor="middle" fill="{_FAINT}">step (iteration)</text>'
    )
    parts.append(
        f'<text transform="translate(34 {middle:.1f}) rotate(-90)" text-anchor="middle" fill="{_FAINT}">rank</text>'
    )
    return parts


def _ticks(count: int, least: int) -> range:
    """Places of labels: at a round distance of at least `least`."""
    steps = (n * 10**e for e in range(7) for n in (1, 2, 4, 5, 8))
    return range(0, count, min((s for s in steps if s >= least), default=1))


def _sums(found: LateArrivals, rows: list[tuple[int, int]], high: float, left: float) -> list[str]:
    """A bar for each row: all steps together, so that a rank that is always a little late shows
    too.
    """
    total = {r.rank: r.held_up_ms for r in found.ranks}
    sums = [max(v for r, v in total.items() if a <= r <= b) for a, b in rows]
    most = max(sums, default=0.0)
    if most <= 0:
        return []
    room = min(_BAR, _WIDTH - left - 70)
    parts = [f'<text x="{left:.1f}" y="{_TOP - 8}" fill="{_FAINT}">all steps</text>']
    path = "".join(
        f"M{left:.1f} {_TOP + y * high + high * 0.15:.2f}h{room * v / most:.2f}v{high * 0.7:.2f}h-{room * v / most:.2f}z"
        for y, v in enumerate(sums)
        if v > 0
    )
    parts.append(f'<path fill="{_FAINT}" d="{path}"/>')
    y = sums.index(most)
    parts.append(
        f'<text x="{left + room + 6:.1f}" y="{_TOP + (y + 0.5) * high + 4:.1f}">{_ms(most)}</text>'
    )
    return parts


def _legend(limits: list[float], gaps: bool, top: float) -> list[str]:
    boxes = [(_NOTHING, "no operations")] if gaps else []
    boxes += [(_CALM, f"below {_ms(limits[0])}" if limits else "no rank waited")]
    for n, limit in enumerate(limits):
        words = (
            f"{_ms(limit)} to {_ms(limits[n + 1])}"
            if n + 1 < len(limits)
            else f"{_ms(limit)} and more"
        )
        boxes.append((_colour(n, len(limits)), words))
    parts, x = [], float(_LEFT)
    for colour, words in boxes:
        need = 24 + len(words) * 6.6
        if x + need > _WIDTH - 10:
            x, top = _LEFT, top + 22
        parts.append(
            f'<rect x="{x:.1f}" y="{top - 11:.1f}" width="14" height="14" fill="{colour}" stroke="{_FAINT}" stroke-width="0.7"/>'
        )
        parts.append(f'<text x="{x + 20:.1f}" y="{top + 1:.1f}" font-size="12">{words}</text>')
        x += need + 10
    return parts


def _ms(value: float) -> str:
    """``0.03 ms``, ``30 ms``, ``3 s``"""
    return duration(value / 1000) if value >= 1000 else f"{value:.3g} ms"


def _span(pair: tuple[int, int]) -> str:
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]}-{pair[1]}"
