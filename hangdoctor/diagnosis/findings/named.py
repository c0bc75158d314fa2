"""Things that findings speak of: operations, ranks' places, what a process does."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ...model.capture import Frame, ToldEnd


class GroupRef(Struct, frozen=True):
    """A process group as a reader knows it."""

    axis: str = ""  # tp, dp, pp, world, or "" where the group is something else
    name: str = ""  # what the program calls it, else ""
    ranks: tuple[int, ...] = ()


class Op(Struct, frozen=True):
    """One operation. Records have a number and a line (`site`), stacks the user's frame and that
    of the framework that made the call. `called_from`: the user's frame, where `site` is a library's.
    """

    name: str
    seq: int = -1
    group: GroupRef = GroupRef()
    peer: int | None = None  # of a send or receive; -1 is any rank
    peers: tuple[int, ...] = ()  # of several ranks at one line, each with another peer
    beside: Literal["before", "after", ""] = ""  # where that is each one's neighbour
    site: str = ""
    frame: Frame | None = None
    caller: Frame | None = None
    called_from: Frame | None = None
    made: str = ""  # of new_group: the members that it asks for, "0-3,8"


class Home(Struct, frozen=True):
    """Where a rank runs."""

    rank: int
    node: str = ""
    pid: int = 0
    gpu: str = ""


# idle: an actor of Ray between two calls.
Act = Literal["blocked", "still", "running", "working", "loading", "retrying", "idle"]


class Doing(Struct, frozen=True):
    """What a thread does; `call` is the system call that it is blocked in, or the exception after
    which it tries again.
    """

    act: Act
    call: str = ""


class Waiters(Struct, frozen=True):
    """Ranks that wait in one operation; `seconds` is the longest that one of them has, 0 where no
    clock says.

    `elsewhere` are the ranks that wait in other operations.
    """

    ranks: tuple[int, ...]
    op: Op
    seconds: float = 0.0
    elsewhere: tuple[int, ...] = ()


class End(Struct, frozen=True):
    """How a process ended; `code` None: nothing says how, negative: the signal that killed it."""

    code: int | None = None
    oom_kills: int = 0  # of its cgroup
    told: ToldEnd | None = None  # by its scheduler


class EndedMeanwhile(Struct, frozen=True):
    """A job that ended while it was captured: alike ends together, in the order of ranks."""

    ends: tuple[tuple[End, tuple[int, ...]], ...]
    named: bool = False  # the cause is known


class Usual(Struct, frozen=True):
    """Of the last `of` waits, `as_long` took as long as this one; of 0: the last two of each rank."""

    as_long: int
    of: int
    settle_s: int  # a pause between the samples after which no doubt is left


class StillAlone(Struct, frozen=True):
    """The only rank that had not moved for `seconds` when its job ended."""

    rank: int
    frame: Frame
    seconds: float
