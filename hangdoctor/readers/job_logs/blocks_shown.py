"""Which lines around one are shown with it: those by which the same speaker tells its failure, and the nearest others.

[n4:81] lake.c:12 the shore gave way          <- of the block of the line below, with the same tag
[n7:90] step 12
[n4:81] FATAL: cannot go on
"""

from __future__ import annotations

from collections.abc import Sequence

from ...model.log_lines import Row
from ...text.late import late
from .failure_words import is_frame, judged
from .whose_line import whose

MOST = 9  # lines, with its own
_NEAR = 4  # nearest lines on each side
_HEAD = 2  # lines above the head of a traceback
_TAG = late(
    r"\s{0,8}(?:\[[A-Za-z][\w.-]{0,80}(?::\d{1,9}){0,2}\]|\[\d{1,7}\](?=:|[A-Za-z ])|\([\w ]{1,40}\bpid=\d{1,9}[^()]{0,60}\)|\d{1,6}: |[\w.-]{1,80}:\d{2,9}:\d{1,9} )"
)


def block_of(rows: Sequence[Row], line: int, began: int = 0) -> list[Row]:
    """At most nine of these rows, in their order; each with whose failure it tells. `began`: the head of the
    traceback that ends in `line`.
    """
    own = next((row for row in rows if row.line == line), None)
    others = [row for row in rows if row.line != line]
    for row in others:
        row.who = whose(row.says)
    nearest = sorted(others, key=lambda row: abs(row.line - line))
    tag = _tag(own.says) if own is not None else ""
    head = [row for row in nearest if row.line < began][:_HEAD]
    told = [*head, *(row for row in nearest if row not in head and _tells(row, tag))]
    above = [row for row in nearest if row.line < line][:_NEAR]
    below = [row for row in nearest if row.line > line][:_NEAR]
    beside = sorted([*above, *below], key=lambda row: abs(row.line - line))
    room = MOST - (own is not None)
    chosen = {row.line for row in [*told, *(r for r in beside if r not in told)][:room]}
    return [row for row in rows if row.line == line or row.line in chosen]


def _tells(row: Row, tag: str) -> bool:
    """Whether it tells of the same speaker's failure, and is no frame of a stack."""
    if _tag(row.says) != tag or is_frame(row.says):
        return False
    words = judged(row.says.removeprefix(tag).strip())
    return words is not None and not words.general


def _tag(says: str) -> str:
    match = _TAG.match(says)
    return match[0] if match is not None else ""
