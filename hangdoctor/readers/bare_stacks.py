"""Frames as py-spy prints them, pasted without the line of their thread: one stack after the other, with
or without a heading of a person's own.

broadcast (torch/distributed/distributed_c10d.py:2437)
step (engine.py:1358)
"""

from __future__ import annotations

from msgspec import Struct

from ..model.capture import Frame
from ..text.late import late
from . import native_headings

_FRAME = late(
    r"^[ \t]{0,16}([^\s()][^()]{0,200}?(?:\(\))?) "
    r"\(([^()\s:]{1,300}\.(?:py|pyx|pyc|c|cc|cpp|cu|so[.\d]{0,20})|<[\w .-]{1,60}>):(\d{1,9})\)[ \t]*$"
)
_FEWEST = 3  # frames of the first stack
_MOSTLY = 0.8  # of the lines of such a text are frames
_ENOUGH = 200  # lines, of which half are frames
_MOST = 4096  # stacks


class Heading(Struct, frozen=True):
    """What a person wrote above a stack."""

    ranks: tuple[int, ...] = ()
    many: int = 0  # processes, without their ranks


class Bare(Struct):
    """One stack, innermost frame first, and what stands above it."""

    heading: Heading = Heading()
    frames: list[Frame] = []


def heading_of(line: str) -> Heading | None:
    """A person's own heading above a stack; None of other lines."""
    ranks, many = native_headings.ranks_of(line), native_headings.many_of(line)
    return Heading(ranks, many) if ranks or many else None


def group_label(many: int) -> str:
    """How a sentence calls processes that one stack is of."""
    return f"a group of {many} processes" if many > 1 else "one process"


def read(text: str) -> list[Bare]:
    """The stacks of a text that holds little else; [] of other texts."""
    found: list[Bare] = []
    own = Bare()
    frames = lines = 0
    for line in text.splitlines():
        if not line.strip():
            own = own if not own.frames else Bare()
            continue
        lines += 1
        if lines > _ENOUGH and 2 * frames < lines:
            return []
        match = _FRAME.match(line)
        if match is not None:
            frames += 1
            if not own.frames and len(found) < _MOST:
                found.append(own)
            own.frames.append(Frame(match[1], match[2], int(match[3])))
            continue
        heading = heading_of(line.strip())
        if heading is not None:
            own, frames = Bare(heading), frames + 1
    of_python = any(frame.file.endswith(".py") for bare in found for frame in bare.frames)
    enough = bool(found) and len(found[0].frames) >= _FEWEST and frames >= _MOSTLY * lines
    return found if enough and of_python else []
