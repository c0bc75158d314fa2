"""What Microsoft MPI's mpiexec prints when a job was aborted: a message for each rank, then an analysis of the ends
that were not its own doing.

job aborted:
[ranks] message

[0,2-3] terminated                                         mpiexec ended these

[1] process exited without calling finalize                or: application aborted, with the line
aborting MPI_COMM_WORLD (comm=0x44000000), error 1, comm rank 1

---- error analysis -----

[1] on n1
./lake ended prematurely and may have crashed. exit code 0xc0000005
"""

from __future__ import annotations

import re

from ...model.log_facts import MPI_ABORT, Ended
from ...text.late import late

BEGIN = "[ranks] message"
_ROW = late(r"^\s{0,8}\[(\d{1,7})\] (\S.{0,200}?)\s{0,8}$")
_ABORTS = late(
    r"^aborting \S{1,80} \(comm=0x[0-9a-fA-F]{1,16}\), error (-?\d{1,11}), comm rank \d{1,7}"
)
_ON = late(r"^on ([A-Za-z0-9][\w.-]{0,120})$")
_CRASHED = late(
    r"ended prematurely and may have crashed\. exit code (0x[0-9a-fA-F]{1,8}|-?\d{1,11})"
)
# Windows' exceptions, as the signals that they are elsewhere
_SIGNALS = {0xC0000005: 11, 0xC00000FD: 11, 0xC0000094: 8, 0xC000001D: 4, 0xC0000409: 6, 3: 6}
_STOPPED = 0xC000013A  # by Ctrl-C
_LEFT = "exited without calling finalize"


class MsMpi:
    """Of one file, line by line."""

    def __init__(self) -> None:
        self._begin(False)

    def _begin(self, inside: bool) -> None:
        self._open = inside
        self._rank, self._node = -1, ""  # of the last row
        self._aborted = -1

    def feed(self, text: str) -> Ended | None:
        """A line with its prefix, which has the rank; the end of a rank, once its node and code are there."""
        if BEGIN in text:
            self._begin(True)
            return None
        if not self._open:
            return None
        row = _ROW.match(text)
        if row is not None:
            self._rank, self._node = int(row[1]), ""
            on = _ON.match(row[2])
            if on is not None:
                self._node = on[1]
            elif row[2] == "application aborted":
                self._aborted = self._rank
            return None
        gave, crashed = _ABORTS.match(text), _CRASHED.search(text)
        if gave is not None and self._aborted >= 0:
            return _aborted(self._aborted, int(gave[1]), text)
        if crashed is not None and self._node:
            return self._crashed(crashed)
        return None

    def _crashed(self, match: re.Match[str]) -> Ended | None:
        code = int(match[1], 0)
        if code == _STOPPED:
            return None
        signal = _SIGNALS.get(code, 0)
        return Ended(
            rank=self._rank, node=self._node, code=-signal or code, by="mpirun", first=True
        )


def _aborted(rank: int, code: int, says: str) -> Ended:
    return Ended(
        rank=rank, code=code & 0xFF or 1, by=MPI_ABORT, first=True, given=max(code, -1), says=says
    )
