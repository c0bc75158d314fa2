"""The process of Open MPI's on a node that mpirun lost, in the words of its versions up to 1.10; of later
ones `launcher_tables.py` reads it.

ORTE has lost communication with its daemon located on node:
  hostname:  n4
"""

from __future__ import annotations

from ...model.log_facts import NodeLost
from ...text.late import late

_HOST = late(r"^\s*hostname:\s{1,8}([A-Za-z0-9][\w.-]{0,250})\s*$")
_NEAR = 4  # lines until the host's name
BEGIN = "lost communication with its daemon"


class LostDaemons:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._left = 0

    def feed(self, text: str) -> NodeLost | None:
        """The node, once it was read."""
        if BEGIN in text:
            self._left = _NEAR
            return None
        if self._left <= 0:
            return None
        self._left -= 1
        match = _HOST.match(text)
        if match is None:
            return None
        self._left = 0
        return NodeLost(nodes=[match[1]], by="Open MPI")
