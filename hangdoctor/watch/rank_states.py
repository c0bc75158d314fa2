"""The states of a rank as a watching person sees them: one table, from which the terminal, the page, its style and its
JavaScript take theirs.

`scripts/states_js.py` writes `web/static/states.js` and `states.css`; a test compares them with the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from msgspec import Struct


class RankState(Struct, frozen=True, kw_only=True):
    """One state. Its place in `TABLE` is the code that the page's stream uses."""

    name: str
    concern: int  # 0 is shown first: the order of a list, and which of several ranks in one square is shown
    unblamed: int  # the order of groups of ranks where none is known to block the others
    glyph: str = ""  # one ASCII character for the terminal, "" for none
    sign: str = ""  # the same for the page
    legend: str  # in a list of states
    phrase: str = ""  # of one rank: "is stopped"; "" where that is no reason for others to wait
    short: str = ""  # of a number of ranks: "3 stopped"
    style: str  # of the terminal, as rich has it
    light: str  # colour of the page
    dark: str  # the same where the person prefers dark pages
    dark_ink: bool = False  # letters on that colour


TABLE = (
    RankState(
        name="unseen",
        concern=10,
        unblamed=9,
        legend="not seen yet",
        style="dim",
        light="#e6e9eb",
        dark="#242e35",
        dark_ink=True,
    ),
    RankState(
        name="moving",
        concern=8,
        unblamed=8,
        glyph=">",
        legend="moving",
        style="green",
        light="#2a9178",
        dark="#2f8f78",
    ),
    RankState(
        name="working",
        concern=7,
        unblamed=3,
        glyph="~",
        sign="~",
        legend="working outside of operations",
        style="cyan",
        light="#4d9fd6",
        dark="#4a95c9",
        dark_ink=True,
    ),
    RankState(
        name="waiting",
        concern=6,
        unblamed=2,
        glyph="|",
        sign="\u2016",
        legend="waiting in an operation",
        style="yellow",
        light="#e8b339",
        dark="#dba72f",
        dark_ink=True,
    ),
    RankState(
        name="outside",
        concern=4,
        unblamed=5,
        glyph="!",
        sign="!",
        legend="outside of any operation",
        phrase="is outside of any operation",
        short="outside of any operation",
        style="bold red",
        light="#d1461f",
        dark="#ec6440",
    ),
    RankState(
        name="still",
        concern=5,
        unblamed=4,
        glyph="-",
        sign="\u2013",
        legend="no progress (no black box)",
        phrase="makes no progress",
        short="without progress",
        style="magenta",
        light="#b678a5",
        dark="#b678a5",
    ),
    RankState(
        name="silent",
        concern=2,
        unblamed=6,
        glyph="?",
        sign="?",
        legend="its node is silent",
        phrase="is silent: its node does not answer",
        short="silent",
        style="bold magenta",
        light="#7b858d",
        dark="#76828b",
    ),
    RankState(
        name="gone",
        concern=1,
        unblamed=7,
        glyph="x",
        sign="\u00d7",
        legend="process gone",
        phrase="is gone",
        short="gone",
        style="bold red reverse",
        light="#17222c",
        dark="#f2f5f7",
    ),
    RankState(
        name="finished",
        concern=9,
        unblamed=10,
        sign="✓",
        legend="finished",
        style="dim",
        light="#c3cacf",
        dark="#46525b",
        dark_ink=True,
    ),
    RankState(
        name="stopped",
        concern=0,
        unblamed=0,
        glyph="T",
        sign="■",
        legend="its process is stopped",
        phrase="is stopped",
        short="stopped",
        style="bold red",
        light="#9c1c1c",
        dark="#d8434e",
    ),
    RankState(
        name="blocked",
        concern=3,
        unblamed=1,
        glyph="D",
        sign="◆",
        legend="blocked in uninterruptible I/O",
        phrase="is blocked in I/O",
        short="blocked in I/O",
        style="bold red",
        light="#8a4b00",
        dark="#b8732a",
    ),
)
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
    dark_ink = [state.name for state in TABLE if state.dark_ink]
    lines = [
        "// Written by `scripts/states_js.py`; do not edit.",
        f"export const STATES = {written(list(STATES))};",
        f"export const GLYPHS = {written(signs)};",
        f"export const SAYS = {written(legends)};",
        "// Codes, the state first that is shown for several ranks in one square.",
        f"export const WORST = {written(worst)};",
        "// States that may block the others.",
        f"export const SUSPECT = {written(list(SUSPECT))};",
        "// States whose colour wants dark letters.",
        f"export const DARK_INK = {written(dark_ink)};",
    ]
    return "\n".join(lines) + "\n"


def stylesheet() -> str:
    """The colours of the table as the page's style sheet `states.css`, one variable `--STATE` a state."""
    return "\n".join(_stylesheet_lines()) + "\n"


def _stylesheet_lines() -> Iterator[str]:
    yield "/* Written by `scripts/states_js.py`; do not edit. */"
    yield ":root {"
    for state in TABLE:
        yield f"  --{state.name}: {state.light};"
    yield "}"
    yield "@media (prefers-color-scheme: dark) {"
    yield "  :root {"
    for state in TABLE:
        yield f"    --{state.name}: {state.dark};"
    yield "  }"
    yield "}"
