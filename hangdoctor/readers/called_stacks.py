"""Stacks that a person wrote down line by line with the call that each line makes, innermost first.

[Task A]
mpi_layer.F90:568        call MPI_BCAST(vec,lsize,MPI_LOGICAL,lpebcast,comm,ierr)
driver.F90:92            call init()

A line names the function that it calls, so that the place of a function is the line above it.
"""

from __future__ import annotations

import re

from ..model.capture import Frame, ThreadSample
from ..text.late import late
from . import native_headings
from .pyspy_frames import MAX_NAME
from .pyspy_text import TextProcess

_LINE = late(
    r"^\s{0,40}(?P<file>[\w./+-]{1,300}\.(?:[fF](?:\d\d)?|for|c|cc|cpp|cxx|C|cu|jl)):(?P<line>\d{1,7})\b"
    r"[ \t:]{0,60}(?P<code>[^\n]{0,400})$"
)
_CALL = late(r"\bcall +([A-Za-z_]\w{0,200})|(?<![\w.>])((?:P?MPI|mpi|pmpi)_[A-Za-z_]\w{0,100}) *\(")
_HEAD = late(
    r"^[\W_]*((?:[Tt]ask|[Pp]roc(?:ess)?|[Gg]roup|[Rr]ank|[Ss]tack) [A-Z0-9]{1,12})[\W_]*$"
)
_MPI = late(r"^p?mpi_", re.I)
_FEWEST = 2  # lines of a stack
_MOST = 4096  # stacks


def read(text: str) -> list[TextProcess]:
    """The stacks; [] of texts in which no such line calls MPI."""
    found: list[tuple[str, list[tuple[str, Frame]]]] = []
    name, begins = "", True
    for line in text.splitlines():
        head = _HEAD.match(line)
        match = _LINE.match(line) if head is None else None
        if head is not None:
            name, begins = head[1], True
        elif match is None:
            begins = begins or not line.strip()
        else:
            if begins and len(found) < _MOST:
                found.append((name, []))
            found[-1][1].append(_called(match))
            name, begins = "", False
    stacks = [(who, _frames(lines)) for who, lines in found if len(lines) >= _FEWEST]
    # Of lines that were searched for, each calls MPI.
    stacks = [(who, own) for who, own in stacks if not any(_MPI.match(f.name) for f in own[1:])]
    if not any(_MPI.match(frames[0].name) for _, frames in stacks):
        return []
    return [_process(who, frames) for who, frames in stacks]


def _called(match: re.Match[str]) -> tuple[str, Frame]:
    """(what the line calls, "" where it does not say, and the line)."""
    call = _CALL.search(match["code"])
    name = (call[1] or call[2]) if call is not None else ""
    if _MPI.match(name):
        kind = name.upper().removeprefix("P").removeprefix("MPI_")
        name = f"MPI_{kind.capitalize()}"
    return name[:MAX_NAME], Frame("", match["file"][:MAX_NAME], int(match["line"]))


def _frames(lines: list[tuple[str, Frame]]) -> list[Frame]:
    """The call of the innermost line, then each line in the function that the next one calls."""
    frames = [Frame(lines[0][0], "", 0)] if lines[0][0] else []
    for (_, at), caller in zip(lines, [*(name for name, _ in lines[1:]), ""], strict=True):
        frames.append(Frame(caller or at.file.rpartition("/")[2], at.file, at.line))
    return frames


def _process(who: str, frames: list[Frame]) -> TextProcess:
    thread = ThreadSample(tid=0, name="MainThread", frames=frames)
    ranks = native_headings.ranks_of(who)
    return TextProcess(0, "", "", [thread], rank=ranks[0] if len(ranks) == 1 else -1, label=who)
