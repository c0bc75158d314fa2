"""Native stacks as a debugger prints them, pasted without the numbers and addresses of their frames:

opal_progress () from /usr/lib64/libopen-pal.so.40
PMPI_Barrier () from /usr/lib64/libmpi.so.40
main ()

One stack ends where its `main` or an empty line stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..text.late import late

_FRAME = late(
    r"^\s{0,16}(?:[\w~:<>,*&. ]{0,200}?::)?(?:\?\?|~?[A-Za-z_][\w.@]{0,200})(?:<[^()]{0,200}>)? \([^()]{0,400}\)"
    r"(?P<place> (?:from \S{1,400}|at \S{1,400}:\d{1,9}))?\s*$"
)
# Julia's, as it prints them where a signal ends it
_JULIA = late(
    r"^\s{0,8}(?P<name>[A-Za-z_#][\w!.#@]{0,200}) at (?P<file>\S{1,400}?)(?::(?P<line>\d{1,9})| \(unknown line\))(?: \[inlined\])?\s*$"
)
_UNNAMED = late(
    r"^\s{0,8}(?:unknown function \(ip: 0x[0-9a-f]{1,16}\)|in expression starting at \S{1,400}:\d{1,9})\s*$"
)
_SIGNAL = late(r"^\s{0,8}(?:\[\d{1,9}\] )?signal (?:\d{1,3}: |\()")  # which begins another stack
_MAIN = late(r"^\s{0,16}(?:_start|main) \(")
_FEWEST = 3  # frames of such a text, one of which says where it is
_MOSTLY = 0.7  # of the lines are frames
_MOST_LINES = 20_000


def numbered(text: str) -> str:
    """The text with a number before each frame; "" for one that is of something else."""
    lines = text.splitlines()
    if len(lines) > _MOST_LINES:
        return ""
    lines = _from_julia(lines)
    matches = [_FRAME.match(line) for line in lines]
    frames = [match for match in matches if match is not None]
    said = sum(bool(line.strip()) for line in lines)
    placed = any(match["place"] for match in frames)
    if len(frames) < _FEWEST or not placed or len(frames) < _MOSTLY * said:
        return ""
    return "\n".join(_counted(lines, [match is not None for match in matches]))


def _from_julia(lines: list[str]) -> list[str]:
    """The frames that Julia printed as a debugger prints them, without those that have no name; other texts
    are left as they are.
    """
    found = [_JULIA.match(line) for line in lines]
    if sum(match is not None for match in found) < _FEWEST:
        return lines
    kept = []
    for at, (line, match) in enumerate(zip(lines, found, strict=True)):
        torn = match is None and 0 < at < len(lines) - 1 and found[at - 1] and found[at + 1]
        another = not line.strip() or _SIGNAL.match(line) is not None
        if _UNNAMED.match(line) is not None or (torn and not another):
            continue  # or what another process printed into the stack
        kept.append(_as_of_debugger(match) if match is not None else line)
    return kept


def _as_of_debugger(frame: re.Match[str]) -> str:
    name = re.sub(r"[^\w.]", "_", frame["name"])
    place = f"at {frame['file']}:{frame['line']}" if frame["line"] else f"from {frame['file']}"
    return f"{name} () {place}"


def _counted(lines: list[str], is_frame: list[bool]) -> Iterator[str]:
    number = 0
    for line, of_stack in zip(lines, is_frame, strict=True):
        if not of_stack:
            number = 0
            yield line
            continue
        yield f"#{number}  {line.strip()}"
        number = 0 if _MAIN.match(line) else number + 1
