"""Draw docs/images/architecture.svg: the way of the data through the rooms, and the layers of
imports.

    python scripts/architecture.py            writes the picture
    python scripts/architecture.py --check    exits with 1 where picture and code no longer fit

Rooms and layers come from the import contract in pyproject.toml, a room's line from the docstring
of its package. A flow names a type of ours; it is wrong where one of its two rooms never mentions
it.
"""

from __future__ import annotations

import ast
import re
import sys
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "architecture.svg"
WIDTH = 1240


class Station(NamedTuple):
    """A room on the data's way: its column, its row, and how many columns it is wide."""

    room: str
    column: int
    row: int
    wide: int = 1


class Flow(NamedTuple):
    """What one room hands to the next: the name of a type or module that both mention."""

    giver: str
    taker: str
    what: str


STATIONS = [
    Station("probe", 0, 0),
    Station("readers", 1, 0),
    Station("agents", 2, 0),
    Station("transport", 3, 0),
    Station("collector", 4, 0),
    Station("sidecar", 5, 0),
    Station("launchers", 2, 1, wide=4),
    Station("diagnosis", 6, 0),
    Station("report", 7, 0),
    Station("watch", 4, -1),
    Station("web", 5, -1),
    Station("storage", 6, -1),
    Station("timeline", 7, -1),
    Station("stacks", 7, 1),
]
FLOWS = [
    Flow("probe", "readers", "fmt"),
    Flow("readers", "agents", "capture_node"),
    Flow("agents", "launchers", "NodeReply"),
    Flow("agents", "transport", "Report"),
    Flow("transport", "collector", "Report"),
    Flow("collector", "watch", "StallWatch"),
    Flow("sidecar", "web", "View"),
    Flow("collector", "sidecar", "Conclude"),
    Flow("launchers", "diagnosis", "JobCapture"),
    Flow("sidecar", "diagnosis", "diagnose"),
    Flow("diagnosis", "storage", "Diagnosis"),
    Flow("stacks", "diagnosis", "Place"),
    Flow("storage", "web", "Incidents"),
    Flow("storage", "timeline", "RankOps"),
    Flow("diagnosis", "report", "Diagnosis"),
]
LABELS = {
    "fmt": "black box",
    "capture_node": "NodeCapture",
    "diagnose": "JobCapture",
    "Conclude": "JobCapture",
    "StallWatch": "RankNow",
}

STYLE = """
text{font-family:system-ui,sans-serif;fill:#1f2933}
.room{fill:#f4f6f8;stroke:#8795a1}
.name{font-size:13px;font-weight:600}
.line{font-size:10px;fill:#52606d}
.what{font-size:10px;fill:#0b5394;text-anchor:middle}
.title{font-size:15px;font-weight:600}
.flow{stroke:#0b5394;stroke-width:1.4;fill:none;marker-end:url(#head)}
"""


def layers() -> list[list[str]]:
    """The layers of the import contract, top first; each a list of rooms."""
    text = (ROOT / "pyproject.toml").read_text()
    block = re.search(r'type = "layers"\nlayers = \[\n(.*?)\n\]', text, re.S)
    if block is None:
        raise SystemExit("pyproject.toml has no contract of type layers")
    rows = re.findall(r'"([^"]+)"', block.group(1))
    return [[name.strip().removeprefix("hangdoctor.") for name in row.split("|")] for row in rows]


def first_sentence(room: str) -> str:
    """What a room says of itself in the docstring of its package."""
    package = ROOT / "hangdoctor" / room / "__init__.py"
    module = package if package.exists() else ROOT / "hangdoctor" / f"{room}.py"
    text = ast.get_docstring(ast.parse(module.read_text())) or ""
    line = text.partition("\n\n")[0].replace("\n", " ")
    return re.split(r"(?<=[a-z)`])[.;] ", line)[0].rstrip(".")


def sources(room: str) -> str:
    """All Python text of one room."""
    folder = ROOT / "hangdoctor" / room
    files = folder.rglob("*.py") if folder.is_dir() else [folder.with_suffix(".py")]
    return "\n".join(f.read_text() for f in sorted(files))


def wrong_flows() -> list[str]:
    """Flows of which one end never mentions what is said to flow."""
    return [
        f"{flow.giver} -> {flow.taker}: {room} never mentions {flow.what}"
        for flow in FLOWS
        for room in (flow.giver, flow.taker)
        if not re.search(rf"\b{flow.what}\b", sources(room))
    ]


def undrawn_rooms() -> list[str]:
    """Packages that no layer of the contract names."""
    named = {room for layer in layers() for room in layer} | {"train"}
    found = {p.parent.name for p in (ROOT / "hangdoctor").glob("*/__init__.py")}
    return [f"hangdoctor/{room}/ is in no layer of the import contract" for room in found - named]


def wrapped(text: str, width: int, most: int) -> list[str]:
    """At most `most` lines of `width` characters."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) + 1 > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines[:most]


def box(room: str, x: float, y: float, width: float, height: float) -> list[str]:
    """One room: its name and its own line."""
    out = [
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="6" class="room"/>',
        f'<text x="{x + 8:.0f}" y="{y + 18:.0f}" class="name">{room}</text>',
    ]
    lines = wrapped(first_sentence(room), int(width / 5.9), int((height - 22) / 11))
    for i, line in enumerate(lines):
        out.append(
            f'<text x="{x + 8:.0f}" y="{y + 31 + 11 * i:.0f}" class="line">{escape(line)}</text>'
        )
    return out


STEP, BOX_W, BOX_H, WAY_TOP = 136, 112, 92, 184


def corner(station: Station) -> tuple[float, float, float]:
    """(x, y, width) of a station's box."""
    x = 20 + station.column * STEP
    y = WAY_TOP + station.row * 134
    return x, y, BOX_W + (station.wide - 1) * STEP


def arrow(flow: Flow) -> list[str]:
    """One flow as a line with a head and its label."""
    at = {s.room: s for s in STATIONS}
    (ax, ay, aw), (bx, by, bw) = corner(at[flow.giver]), corner(at[flow.taker])
    label = LABELS.get(flow.what, flow.what)
    if ay == by and bx < ax:
        x1, y1, x2, y2 = ax, ay + 28, bx + bw, by + 28
        text_x, text_y = (x1 + x2) / 2, ay - 6
    elif ay == by:
        x1, y1, x2, y2 = ax + aw, ay + 28, bx, by + 28
        text_x, text_y = (x1 + x2) / 2, ay - 6
    elif bx >= ax + aw or ax >= bx + bw or at[flow.giver].wide > 1:
        x1, y1 = ax + aw, ay + BOX_H / 2
        x2, y2 = bx + bw / 2, by + BOX_H if ay > by else by
        if flow.giver == "stacks":
            x1, y1, x2, y2 = ax, ay + BOX_H / 2, bx + bw - 20, by + BOX_H
        text_x, text_y = (x1 + x2) / 2, max(y1, y2) - 8
    else:
        x1, x2 = ax + aw / 2, bx + bw / 2
        y1, y2 = (ay, by + BOX_H) if ay > by else (ay + BOX_H, by)
        text_x, text_y = x1 + 30, (y1 + y2) / 2 + 4
    return [
        f'<path d="M{x1:.0f} {y1:.0f} L{x2:.0f} {y2:.0f}" class="flow"/>',
        f'<text x="{text_x:.0f}" y="{text_y:.0f}" class="what">{label}</text>',
    ]


def drawn() -> str:
    """The whole picture."""
    rows = layers()
    layers_top = WAY_TOP + 276
    height = layers_top + 30 + len(rows) * 66 + 20
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#0b5394"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        '<text x="20" y="28" class="title">The way of the data: from the rank to the report</text>',
    ]
    for station in STATIONS:
        x, y, width = corner(station)
        out += box(station.room, x, y, width, BOX_H)
    for flow in FLOWS:
        out += arrow(flow)
    out.append(
        f'<text x="20" y="{layers_top + 12}" class="title">The layers: a room imports from rooms below only</text>'
    )
    for row, rooms in enumerate(rows):
        width = (WIDTH - 40 - 10 * (len(rooms) - 1)) / len(rooms)
        for column, room in enumerate(rooms):
            out += box(room, 20 + column * (width + 10), layers_top + 26 + row * 66, width, 58)
    return "\n".join([*out, "</svg>", ""])


def main() -> int:
    """Write the picture, or check it."""
    trouble = wrong_flows() + undrawn_rooms()
    picture = drawn()
    if "--check" not in sys.argv:
        PICTURE.write_text(picture)
    elif not PICTURE.exists() or PICTURE.read_text() != picture:
        trouble.append("docs/images/architecture.svg is old: run scripts/architecture.py")
    print("\n".join(trouble) or "the picture fits the code")
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
