"""The states of a rank as the live views show them: one table for the terminal, the page and its
JavaScript.

`scripts/states_js.py` writes `web/static/states.js`; a test compares the two.
"""

from __future__ import annotations

import json

from msgspec import Struct


class RankState(Struct, frozen=True):
    """One state. Its place in `TABLE` is the code that the page's stream uses."""

    name: str
    concern: int  # 0 is shown first: the order of a list, and which of several ranks in one square is shown
    glyph: str  # one ASCII character for the terminal, "" for none
    sign: str  # the same for the page
    legend: str  # in a list of states
    phrase: str = ""  # of one rank: "is stopped"; "" where that is no reason for others to wait
    short: str = ""  # of a number of ranks: "3 stopped"


TABLE = (
    RankState("unseen", 10, "", "", "not seen yet"),
    RankState("moving", 8, ">", "", "moving"),
    RankState("working", 7, "~", "~", "working outside of operations"),
    RankState("waiting", 6, "|", "\u2016", "waiting in an operation"),
    RankState(
        "outside",
        4,
        "!",
        "!",
        "not in any operation",
        "is not in any operation",
        "not in any operation",
    ),
    RankState(
        "still",
        5,
        "-",
        "\u2013",
        "no progress (no black box)",
        "makes no progress",
        "without progress",
    ),
    RankState(
        "silent",
        2,
        "?",
        "?",
        "its node does not answer",
        "cannot be seen: its node does not answer",
        "on nodes that do not answer",
    ),
    RankState(
        "gone",
        1,
        "x",
        "\u00d7",
        "process has ended or was killed",
        "is dead: its process has ended or was killed",
        "dead",
    ),
    RankState("finished", 9, "", "✓", "finished"),
    RankState("stopped", 0, "T", "■", "its process is stopped", "is stopped", "stopped"),
    RankState(
        "blocked",
        3,
        "D",
        "◆",
        "blocked in uninterruptible I/O",
        "is blocked in I/O",
        "blocked in I/O",
    ),
)
STATES = tuple(state.name for state in TABLE)
CODES = {name: code for code, name in enumerate(STATES)}
BY_NAME = {state.name: state for state in TABLE}
BY_CONCERN = tuple(state.name for state in sorted(TABLE, key=lambda s: s.concern))
SUSPECT = tuple(
    name for name in BY_CONCERN if BY_NAME[name].phrase
)  # others may be waiting for such a rank


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
    ]
    return "\n".join(lines) + "\n"
