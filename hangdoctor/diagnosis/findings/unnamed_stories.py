"""What native stacks show of processes of which no rank is known: they are called by other names."""

from __future__ import annotations

from msgspec import Struct

from ...model.frame import Frame
from .named import Op


class UnnamedElsewhere(Struct, frozen=True):
    """The `late` are not in `their_op`, in which `others` wait; `own_op`: the call that they are in
    themselves, None where they are in the program's own code.
    """

    late: tuple[str, ...]
    own_op: Op | None
    others: tuple[str, ...]
    their_op: Op
    frame: Frame | None = None  # where they are, in their own code


class EndedItself(Struct, frozen=True):
    """These called MPI_Abort, or abort(), in this function of the program; `values`: its arguments."""

    names: tuple[str, ...]
    frame: Frame
    by_mpi: bool = False
    values: tuple[tuple[str, int], ...] = ()


class UnnamedAt(Struct, frozen=True):
    """Where some of them are: innermost frames first."""

    names: tuple[str, ...]
    frames: tuple[Frame, ...]


class Standing(Struct, frozen=True):
    """Processes at one place: in a call, else in the program's own code; neither where their stack
    does not show it.
    """

    names: tuple[str, ...]
    op: Op | None = None
    frame: Frame | None = None
    end: int = 0  # the signal that ended them
    aborted: bool = False  # they called MPI_Abort
    locked: bool = False  # at a lock inside of the allocator or of a signal's handler
    inside: bool = False  # they wait there for another thread of their own process
    passed: bool = False  # it is past the line at which the others wait
    within: Frame | None = None  # somewhere inside of this one: the frames within it are not known
    rankless: bool = False  # they run no rank
    collective: bool = False  # `op` waits for all members of a group
    pair: bool = False  # and the library's own function is one for a group of two
    requests: bool = False  # of MPI's, which were begun before: `op` is not known
    awaits: str = ""  # and wait for this, by its name in `stacks.no_ranks`
