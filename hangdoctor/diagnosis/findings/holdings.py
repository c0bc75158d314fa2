"""What holds a rank that is outside of all communication."""

from __future__ import annotations

from msgspec import Struct

from ...model.capture import Frame
from .named import End


class Debugger(Struct, frozen=True):
    """It is at the prompt of a debugger."""

    tool: str


class TypedInput(Struct, frozen=True):
    """It reads from its standard input."""


class ChildEnded(Struct, frozen=True):
    """A child that it waits for ended badly."""

    pid: int
    end: End


class ChildStopped(Struct, frozen=True):
    """A child is stopped, by process `tracer` where that is not 0."""

    pid: int
    tracer: int = 0


class OnChild(Struct, frozen=True):
    """It waits for a living child; `unread`: which is blocked writing into a pipe of the rank."""

    pid: int
    command: str
    frame: Frame | None = None
    call: str = ""
    by_subprocess: bool = False
    unread: bool = False


class AtWorker(Struct, frozen=True):
    """A worker of its data loader is in the code that makes a sample."""

    pid: int
    frame: Frame


class OnFifo(Struct, frozen=True):
    """It opens a FIFO that has no other end."""


class FarSide(Struct, frozen=True):
    """Who has the other end of its connection: an address, a process of its node, or a rank and
    where the Python threads of that one are.
    """

    address: str
    pid: int = 0
    command: str = ""
    rank: int = -1
    threads: tuple[tuple[str, Frame], ...] = ()


class OnDescriptor(Struct, frozen=True):
    """It is blocked in a system call on what a descriptor leads to; `own_lock`: on a lock that it
    holds itself, or a process that it started.
    """

    call: str
    number: str
    path: str
    writes: bool
    locks: bool
    own_lock: bool = False
    far: FarSide | None = None


class OnLock(Struct, frozen=True):
    """It waits for a lock, and these other threads of its process could hold it; `result`: for what a
    task of a pool returns; `starved`: all threads of the pool wait for results themselves.
    """

    threads: tuple[tuple[str, Frame], ...] = ()
    result: bool = False
    starved: bool = False


class OnPool(Struct, frozen=True):
    """It waits for a task of its multiprocessing.Pool, whose workers are all idle."""

    workers: int


class OnQueue(Struct, frozen=True):
    """It waits for room in a queue of its process, or for something in it; these other threads
    could make it go on.
    """

    full: bool
    threads: tuple[tuple[str, Frame], ...] = ()


class BehindThread(Struct, frozen=True):
    """Another thread of its process had the GIL at `count` of the `samples`, last at this frame."""

    name: str
    tid: int
    frame: Frame
    count: int
    samples: int


class LostThread(Struct, frozen=True):
    """It has no thread of this name, in which the others train."""

    name: str


Holding = (
    Debugger
    | TypedInput
    | ChildEnded
    | ChildStopped
    | OnChild
    | AtWorker
    | OnFifo
    | OnDescriptor
    | OnLock
    | OnPool
    | OnQueue
    | BehindThread
    | LostThread
)
