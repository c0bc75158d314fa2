"""Where job logs show that a process was, mostly without its rank."""

from __future__ import annotations

from msgspec import Struct

from ...model.frame import Frame
from .named import Op


class AsksInput(Struct, frozen=True):
    """It asked a question on standard input, and no answer came; `debugger`: a debugger's prompt."""

    question: str
    at: str  # file and line of the log
    debugger: bool = False


class AloneInStacks(Struct, frozen=True):
    """Of `processes` whose stacks a guard printed, these are elsewhere, the others in `op`."""

    few: int
    processes: int
    op: Op


class ApartInTable(Struct, frozen=True):
    """A table has these elsewhere than `others`, who stand `there`, in a call made at the line `called`."""

    others: tuple[int, ...]
    there: Frame
    called: Frame


class SeenInList(Struct, frozen=True):
    """A list of ps or top shows these processes in this state, and `others` of their name in none."""

    state: str
    pids: tuple[int, ...]
    others: tuple[int, ...]
    name: str


class TookOther(Struct, frozen=True):
    """Gloo brought it data of another size than its call takes, and `others` were in `theirs`."""

    theirs: Op
    others: tuple[int, ...]


class OtherWords(Struct, frozen=True):
    """Every rank gave up in one place, and its error names another thing than those of `others`."""

    mine: str
    theirs: str
    others: tuple[int, ...]


class PrintedOtherwise(Struct, frozen=True):
    """Before all waited it alone printed a line as no other rank did (`OwnLine.lead`, or "leaves":
    its last line says so; "all": so do those of all), `at` a file and line of the log; `usual`:
    that of all others.
    """

    lead: str
    mine: str
    at: str
    usual: str


PlaceStory = (
    AsksInput
    | AloneInStacks
    | ApartInTable
    | SeenInList
    | TookOther
    | OtherWords
    | PrintedOtherwise
)
