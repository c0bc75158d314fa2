"""Native stacks as a debugger prints them, pasted without the numbers and addresses of their frames:

opal_progress () from /usr/lib64/libopen-pal.so.40
PMPI_Barrier () from /usr/lib64/libmpi.so.40
main ()

One stack ends where its `main` or an empty line stands.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..text.late import late

_FRAME = late(
    r"^\s{0,16}(?:[\w~:<>,*&. ]{0,200}?::)?(?:\?\?|~?[A-Za-z_][\w.@]{0,200})(?:<[^()]{0,200}>)? \([^()]{0,400}\)"
    r"(?P<place> (?:from \S{1,400}|at \S{1,400}:\d{1,9}))?\s*$"
)
_MAIN = late(r"^\s{0,16}(?:_start|main) \(")
_FEWEST = 3  # frames of such a text, one of which says where it is
_MOSTLY = 0.7  # of the lines are frames
_MOST_LINES = 20_000


def numbered(text: str) -> str:
    """The text with a number before each frame; "" for one that is of something else."""
    lines = text.splitlines()
    if len(lines) > _MOST_LINES:
        return ""
    matches = [_FRAME.match(line) for line in lines]
    frames = [match for match in matches if match is not None]
    said = sum(bool(line.strip()) for line in lines)
    placed = any(match["place"] for match in frames)
    if len(frames) < _FEWEST or not placed or len(frames) < _MOSTLY * said:
        return ""
    return "\n".join(_counted(lines, [match is not None for match in matches]))


def _counted(lines: list[str], is_frame: list[bool]) -> Iterator[str]:
    number = 0
    for line, of_stack in zip(lines, is_frame, strict=True):
        if not of_stack:
            number = 0
            yield line
            continue
        yield f"#{number}  {line.strip()}"
        number = 0 if _MAIN.match(line) else number + 1
