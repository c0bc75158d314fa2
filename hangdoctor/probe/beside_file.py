"""A file beside the box, written while its rank is idle: what a reader after its end cannot ask
for.
"""

from __future__ import annotations

import os
import struct

from . import format as fmt
from .box import BoxWriter
from .folder import discard, remove_own, write_own
from .whose_error import suppress

_FIRST = 4  # beats without progress; then at each doubling, since it takes the interpreter's lock


def is_due(beats: int) -> bool:
    """Whether it is to be written after so many heartbeats without progress."""
    return beats >= _FIRST and not beats & (beats - 1)


class BesideFile:
    """One such file of one process: the magic, the length of what follows, and that."""

    def __init__(self, box: BoxWriter, suffix: str, magic: bytes) -> None:
        self._path = box.path.with_suffix(suffix)
        self._magic = magic
        self._made: os.stat_result | None = None

    def write(self, data: bytes) -> None:
        """Put it there, or in the place of what was; nothing where that fails."""
        with suppress(OSError):
            self._write(data)

    def remove(self) -> None:
        """What it says is no longer so."""
        if self._made is not None:
            with suppress(OSError):
                remove_own(self._path, self._made)
            self._made = None

    def _write(self, data: bytes) -> None:
        """Its length comes last: a process that is killed meanwhile leaves a file without content."""
        if self._made is None:
            discard(self._path, self._magic)  # of a dead process that had the same number
            how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self._path, how, 0o600)
            try:
                self._made = os.fstat(fd)
                os.pwrite(fd, self._magic, 0)
            finally:
                os.close(fd)
        at = len(self._magic)
        length = struct.pack(fmt.BESIDE_LENGTH, len(data))
        content = at + len(length)
        write_own(self._path, self._made, [(at, bytes(len(length))), (content, data), (at, length)])
