"""The states of a rank as a watching person sees them: one table, from which the terminal, the
page, its style and its JavaScript take theirs.

`scripts/states_js.py` writes `web/static/states.js` and `states.css`; a test compares them with the
table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from msgspec import Struct


class Paint(Struct, frozen=True):
    """Colours of a tile on a light page and on a dark one, as #rrggbb; letters have 4.5:1 or more."""

    light: str
    light_ink: str
    dark: str
    dark_ink: str


class RankState(Struct, frozen=True, kw_only=True):
    """One state. Its place in `TABLE` is the code that the page's stream uses."""

    name: str
    # 0 is shown first: the order of a list, and which of several ranks in one square is shown
    concern: int
    unblamed: int  # the order of groups of ranks where none is known to block the others
    glyph: str = ""  # one ASCII character for the terminal, "" for none
    sign: str = ""  # the same for the page
    legend: str  # in a list of states
    phrase: str = ""  # of one rank: "is stopped"; "" where that is no reason for others to wait
    phrase_many: str = ""  # of several: "are stopped"
    short: str = ""  # of a number of ranks: "3 stopped"
    style: str  # of the terminal, as rich has it
    paint: Paint


TABLE = (
    RankState(
        name="unseen",
        concern=10,
        unblamed=9,
        legend="not seen yet",
        style="dim",
        paint=Paint("#f1efea", "#5d5a53", "#23272d", "#a8a59d"),
    ),
    RankState(
        name="moving",
        concern=8,
        unblamed=8,
        glyph=">",
        sign="\u203a",
        legend="moving",
        style="green",
        paint=Paint("#007a5a", "#ffffff", "#12b487", "#04271d"),
    ),
    RankState(
        name="working",
        concern=7,
        unblamed=3,
        glyph="~",
        sign="~",
        legend="working outside of operations",
        style="cyan",
        paint=Paint("#d3cfc7", "#34312c", "#4a4d53", "#e8e5df"),
    ),
    RankState(
        name="waiting",
        concern=6,
        unblamed=2,
        glyph="|",
        legend="waiting in an operation",
        style="yellow",
        paint=Paint("#9fd0ee", "#123a55", "#2f6f98", "#eaf5fc"),
    ),
    RankState(
        name="outside",
        concern=4,
        unblamed=5,
        glyph="!",
        sign="!",
        legend="in no recorded operation",
        phrase="is in no recorded operation",
        phrase_many="are in no recorded operation",
        short="in no recorded operation",
        style="bold red",
        paint=Paint("#f0c5a0", "#3d2000", "#7a4a26", "#fdeee3"),
    ),
    RankState(
        name="still",
        concern=5,
        unblamed=4,
        glyph="-",
        sign="\u2013",
        legend="no progress (no black box)",
        phrase="makes no progress",
        phrase_many="make no progress",
        short="without progress",
        style="magenta",
        paint=Paint("#cc79a7", "#1c0a14", "#cc79a7", "#1c0a14"),
    ),
    RankState(
        name="silent",
        concern=2,
        unblamed=6,
        glyph="?",
        sign="?",
        legend="its node does not answer",
        phrase="cannot be seen: its node does not answer",
        phrase_many="cannot be seen: the agent there does not answer",
        short="on nodes that do not answer",
        style="bold magenta",
        paint=Paint("#ffffff", "#1c1b19", "#1b1e23", "#e8e5df"),
    ),
    RankState(
        name="gone",
        concern=1,
        unblamed=7,
        glyph="x",
        sign="\u00d7",
        legend="process has ended or was killed",
        phrase="is dead: its process has ended or was killed",
        phrase_many="are dead: their processes have ended or were killed",
        short="dead",
        style="bold red reverse",
        paint=Paint("#35322d", "#ffffff", "#000000", "#c9c5bd"),
    ),
    RankState(
        name="finished",
        concern=9,
        unblamed=10,
        sign="✓",
        legend="finished",
        style="dim",
        paint=Paint("#e2dfd8", "#34312c", "#2f333a", "#e8e5df"),
    ),
    RankState(
        name="stopped",
        concern=0,
        unblamed=0,
        glyph="T",
        sign="\u2016",
        legend="its process is stopped",
        phrase="is stopped",
        phrase_many="are stopped",
        short="stopped",
        style="bold red",
        paint=Paint("#e69f00", "#2c1f00", "#e8ab22", "#2c1f00"),
    ),
    RankState(
        name="blocked",
        concern=3,
        unblamed=1,
        glyph="D",
        sign="■",
        legend="blocked in uninterruptible I/O",
        phrase="is blocked in I/O",
        phrase_many="are blocked in I/O",
        short="blocked in I/O",
        style="bold red",
        paint=Paint("#8a4b00", "#ffffff", "#c98a45", "#1b0d03"),
    ),
)
# A rank that makes the others wait, in its state or in the newest verdict; in the report too.
CAUSE = Paint("#bd4f00", "#ffffff", "#f0752a", "#1b0d03")
CAUSE_SIGN = "◆"
STATES = tuple(state.name for state in TABLE)
CODES = {name: code for code, name in enumerate(STATES)}
BY_NAME = {state.name: state for state in TABLE}
BY_CONCERN = tuple(state.name for state in sorted(TABLE, key=lambda s: s.concern))
# Others may be waiting for such a rank.
SUSPECT = tuple(name for name in BY_CONCERN if BY_NAME[name].phrase)
# Of these it is not said since when: they go on, or there is nothing to wait for.
UNTIMED = ("moving", "unseen", "finished")


def style_of(name: str) -> str:
    """The style of a state in the terminal; "" for one that this version does not know."""
    state = BY_NAME.get(name)
    return state.style if state is not None else ""


def glyph_of(name: str) -> str:
    """The character of a state in the terminal; "" where it has none, or is not known here."""
    state = BY_NAME.get(name)
    return state.glyph if state is not None else ""


def javascript() -> str:
    """The table as the page's module `states.js`."""

    def written(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)

    signs = [state.sign for state in TABLE]
    legends = {state.name: state.legend for state in TABLE}
    worst = [CODES[name] for name in BY_CONCERN]
    lines = [
        "// Written by `scripts/states_js.py`; do not edit.",
        f"export const STATES = {written(list(STATES))};",
        f"export const GLYPHS = {written(signs)};",
        f"export const SAYS = {written(legends)};",
        "// Codes, the state first that is shown for several ranks in one square.",
        f"export const WORST = {written(worst)};",
        "// States that may block the others.",
        f"export const SUSPECT = {written(list(SUSPECT))};",
        "// The sign of a rank that makes the others wait.",
        f"export const CAUSE = {written(CAUSE_SIGN)};",
    ]
    return "\n".join(lines) + "\n"


def stylesheet() -> str:
    """The colours as the page's style sheet `states.css`: `--STATE`, and `--on-STATE` for letters
    on it.
    """
    return "\n".join(_stylesheet_lines()) + "\n"


def _stylesheet_lines() -> Iterator[str]:
    painted = {state.name: state.paint for state in TABLE} | {"cause": CAUSE}
    yield "/* Written by `scripts/states_js.py`; do not edit. */"
    yield ":root {"
    for name, paint in painted.items():
        yield f"  --{name}: {paint.light}; --on-{name}: {paint.light_ink};"
    yield "}"
    yield "@media (prefers-color-scheme: dark) {"
    yield "  :root {"
    for name, paint in painted.items():
        yield f"    --{name}: {paint.dark}; --on-{name}: {paint.dark_ink};"
    yield "  }"
    yield "}"
