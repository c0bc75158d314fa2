"""Python calls of one rank, as read from its ring: what a capture keeps and a diagnosis reads.

Plain data.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Kind = Literal["call", "return", "exception", "open", "begin"]
State = Literal["tracing", "stopped", "switched_off", "waiting"]


class Function(Struct, frozen=True, omit_defaults=True):
    """A code object: its qualified name, file, first line, and the import name of its module."""

    name: str
    file: str
    line: int
    module: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.file}:{self.line})"


class CallThread(Struct, frozen=True, omit_defaults=True):
    """A thread of the rank, by the kernel's number and Python's name."""

    tid: int
    name: str = ""


class Event(Struct, frozen=True, array_like=True):
    """One event: nanoseconds after the trace's `base_ns`, what, and places in `functions` and
    `threads`.

    `call` includes a generator's being resumed, `return` its yield; `exception` is a function left
    by one; `open` was running already when tracing began; `begin` marks where tracing was switched
    on, between what is unrelated.
    """

    at_ns: int
    kind: Kind
    function: int
    thread: int


class CallTrace(Struct, omit_defaults=True):
    """The events of one rank's ring, or the last of them, oldest first."""

    rank: int
    pid: int
    state: State
    path: str = ""
    python: bool = False  # written by the pure-Python variant
    monitoring: bool = False  # by sys.monitoring, else by a profile function
    follow: list[str] = []
    ignore: list[str] = []
    unseen: list[
        str
    ] = []  # names that are followed, and nothing that the rank has imported goes by them
    offered: list[str] = []  # names that do match, where some are unseen
    from_iteration: int = -1
    request: int = 0  # serial of the request that was obeyed last
    began_s: float = 0.0  # when tracing was switched on last, seconds since the epoch
    note: str = ""
    written: int = 0  # events since the file was made
    capacity: int = 0  # events that the ring holds
    torn: int = 0  # events left out because they were being written
    read_s: float = 0.0  # when it was read, seconds since the epoch by the rank's host
    base_ns: int = 0  # nanoseconds since the epoch
    functions: list[Function] = []
    threads: list[CallThread] = []
    events: list[Event] = []

    def at_s(self, event: Event) -> float:
        """When an event was, in seconds since the epoch by the rank's host."""
        return (self.base_ns + event.at_ns) / 1e9
