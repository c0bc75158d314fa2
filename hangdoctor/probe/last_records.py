"""torch's own recorder in a file beside the box, written while nothing gets on.

It counts what C++ issues, which no wrapper sees: gradients of DistributedDataParallel, functional
collectives, compiled graphs. A living rank is asked for it; of one that has ended this file is left.
"""

from __future__ import annotations

from . import format as fmt
from . import torchnames
from .beside_file import BesideFile, is_due
from .box import BoxWriter


class LastRecords:
    """The file of one process: there only while it is idle."""

    def __init__(self, box: BoxWriter) -> None:
        self._file = BesideFile(box, fmt.RECORDS_SUFFIX, fmt.RECORDS_MAGIC)

    def idle(self, beats: int) -> None:
        """Nothing has got on for so many heartbeats."""
        data = torchnames.recorder_dump() if is_due(beats) else b""
        if data:
            self._file.write(data)

    def got_on(self) -> None:
        """What the file says is no longer so."""
        self._file.remove()
