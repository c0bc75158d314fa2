"""torch's own recorder in a file beside the box, written while nothing gets on.

It counts what C++ issues, which no wrapper sees: gradients of DistributedDataParallel, functional
collectives, compiled graphs. A living rank is asked for it; of one that has ended this file is left.
"""

from __future__ import annotations

import os
import struct

from . import format as fmt
from . import torchnames
from .box import BoxWriter
from .folder import discard, remove_own, write_own
from .whose_error import suppress

_FIRST = 4  # beats without progress; then at each doubling, since it takes the interpreter's lock


class LastRecords:
    """The file of one process: there only while it is idle."""

    def __init__(self, box: BoxWriter) -> None:
        self._path = box.path.with_suffix(fmt.RECORDS_SUFFIX)
        self._made: os.stat_result | None = None

    def idle(self, beats: int) -> None:
        """Nothing has got on for so many heartbeats."""
        if beats < _FIRST or beats & (beats - 1):
            return
        data = torchnames.recorder_dump()
        if data:
            with suppress(OSError):
                self._write(data)

    def got_on(self) -> None:
        """What the file says is no longer so."""
        if self._made is not None:
            with suppress(OSError):
                remove_own(self._path, self._made)
            self._made = None

    def _write(self, data: bytes) -> None:
        """Its length comes last: a process that is killed meanwhile leaves a file without content."""
        if self._made is None:
            discard(self._path, fmt.RECORDS_MAGIC)  # of a dead process that had the same number
            how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self._path, how, 0o600)
            try:
                self._made = os.fstat(fd)
                os.pwrite(fd, fmt.RECORDS_MAGIC, 0)
            finally:
                os.close(fd)
        at = len(fmt.RECORDS_MAGIC)
        length = struct.pack(fmt.RECORDS_LENGTH, len(data))
        content = at + len(length)
        write_own(self._path, self._made, [(at, bytes(len(length))), (content, data), (at, length)])
