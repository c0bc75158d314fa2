"""What the hot path touches at every operation, in C where the extension was built, else here: both
write the same box.

`native` is the extension or None: there was no compiler, this is a sub-interpreter or a
free-threaded Python, or HANGDOCTOR_RECORD_PURE=1 says so.
"""

from __future__ import annotations

import itertools
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from mmap import mmap
    from typing import Any


class Holder:
    """Whether anything is recorded now: `recorder`, or None; and what the job itself counts."""

    recorder: Any
    tracer: Any
    learn_iteration: Callable[[Any], None]
    learn_micro_batch: Callable[[Any], None]
    learn_step: Callable[[], None]

    def set_iteration(self, n: Any) -> None:
        """Say which iteration begins."""
        self.learn_iteration(n)

    def set_micro_batch(self, n: Any) -> None:
        """Say which micro-batch begins."""
        self.learn_micro_batch(n)

    def step(self) -> None:
        """An optimizer has made a step."""
        if self.recorder is not None:
            self.learn_step()


class Entry:
    """One process group: its place in the box, its uid as a number, and how many operations it has
    had.
    """

    __slots__ = ("_directed", "index", "seq", "uid_word")
    index: int
    seq: int  # collectives
    uid_word: int

    def __init__(self) -> None:
        self._directed: dict[tuple[int, int], int] = {}

    def next_directed(self, peer: int, direction: int) -> int:
        """The number of a send to this peer, or of a receive from it, from 1."""
        count = self._directed[peer, direction] = self._directed.get((peer, direction), 0) + 1
        return count


class Directory:
    """The process groups of a rank: the default one, and all of them by the id of torch's object."""

    by_id: dict[int, Any]
    default: Any


class Thread:
    """What the probe keeps for each thread."""

    __slots__ = ("coalesced", "depth", "index", "recorder", "word")

    def __init__(self) -> None:
        self.depth = 0  # inside a recorded operation: what that calls is part of it
        self.recorder: Any = None
        self.index = 0
        self.word = 0
        self.coalesced: list[tuple[int, int]] | None = None


class Core:
    """The ring of one box. `careful`: whether a slot's operation may be unfinished when the ring
    comes round to it, which takes a second thread or handles.
    """

    iteration: int
    steps: int  # of the job's optimizers
    careful: bool
    groups: Any
    outstanding: dict[int, Any]  # handles that are followed, by their id
    next_serial: Callable[[], int]
    write_mark: Callable[
        [int, int, int, int], int
    ]  # of the extension: index of the thread, kind, number, id of a text
    enter_here: Callable[
        [Thread, Any, int, int, int, int], tuple[int, int] | None
    ]  # of the extension: its group, number, signature, peer, flags
    leave: Callable[[tuple[tuple[int, int], ...]], None]  # of the extension

    def attach(self, box: mmap, first: int, records: int) -> None:
        """Where records go: the ring's first word, and how many records it has."""
        self.next_serial = itertools.count(1).__next__


native: Any = None
if not TYPE_CHECKING and os.environ.get("HANGDOCTOR_RECORD_PURE", "") in ("", "0"):
    try:
        from .record import _record as native

        Holder, Entry, Directory = native.Holder, native.Entry, native.Directory
        Thread, Core = native.Thread, native.Core
    except ImportError:
        native = None


def read_proc(path: str, most: int) -> bytes:
    """The beginning of a file of procfs; b"" where it cannot be read, or there is no extension.

    Not by `os.open`, which lets other threads run: what the number stands for may have changed by the
    time that it is closed.
    """
    read = getattr(native, "read_proc", None)
    return b"" if read is None else read(os.fsencode(path), most)
