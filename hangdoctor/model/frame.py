"""One frame of a stack: captures, logs and findings speak of it."""

from __future__ import annotations

import re

from msgspec import Struct

_STANDS_FOR_A_CALL = re.compile(r"^<[\w ]+>$")  # of a library, whose own frames were left out


class Frame(Struct, omit_defaults=True, gc=False):
    """One frame of a Python (or native) stack."""

    name: str
    file: str
    line: int
    code: str = ""  # the source line, where the node could read the file
    values: dict[str, int] = {}  # whole-number locals that place the frame: step, src, dst ...
    # Of a loop of the user's that may be a wait of its own: its texts and paths, as checksums of 16 bits.
    texts: dict[str, int] = {}
    catches: str = ""  # exceptions after which a loop around the line tries again
    # The variable of the for loop around the line, which comes to an end; "while" of a while, which may not.
    counts: str = ""
    past: str = ""  # those of loops that it has left, with blanks between them
    turns: list[int] = []  # the lines at which the loops around it begin, outermost first
    only: str = ""  # the condition on the rank under which alone it runs: "rank == 0"
    handle: str = (
        ""  # what its line waits for: "isend", "irecv" or "send or recv", as the source has it
    )
    # Of torch's own that make groups: mesh_shape, ranks, group number; of the user's around these: in a loop.
    lists: dict[str, list[int]] = {}
    loops: bool = False
    key: str = ""  # of a wait in the store, where a variable shows it
    group: str = ""  # of a collective's own frame: "world", "sub", or "" where it could not be told

    def __str__(self) -> str:
        place = self.place
        return f"{self.name} ({place})" if place else self.name

    @property
    def own_name(self) -> str:
        """Its function's name without the class or function around it."""
        return self.name.rpartition(".")[2]

    @property
    def place(self) -> str:
        """``train.py:31``; of native code without its source the library alone, or ""."""
        return place_of(self.file, self.line)


def place_of(file: str, line: int) -> str:
    """The place of a frame: its file and its line, as far as they are known."""
    if line or file.endswith(".py"):
        return f"{file}:{line}"
    return "" if _STANDS_FOR_A_CALL.match(file) else file
