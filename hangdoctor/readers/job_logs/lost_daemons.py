"""A launcher's own process on a node that it lost, in the words of Open MPI's versions.

ORTE has lost communication with its daemon located on node:         up to 1.10
  hostname:  n4
ORTE has lost communication with a remote daemon.                    from 2 on; PRTE from 5 on
  Remote daemon: [[29973,0],3] on node n4
"""

from __future__ import annotations

import re

from ...model.log_facts import NodeLost

_REMOTE = re.compile(r"^\s*Remote daemon ?: \[\S{1,120}\] on node ([\w.-]{1,250})")
_HOST = re.compile(r"^\s*hostname:\s{1,8}([A-Za-z0-9][\w.-]{0,250})\s*$")
_NEAR = 4  # lines until the host's name
BEGINS = ("lost communication with its daemon", "lost communication with a remote daemon")


class LostDaemons:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._left = 0

    def feed(self, text: str) -> NodeLost | None:
        """The node, once it was read."""
        if BEGINS[0] in text:
            self._left = _NEAR
            return None
        match = _REMOTE.match(text) if "Remote daemon" in text else None
        if match is None and self._left > 0:
            self._left -= 1
            match = _HOST.match(text)
        if match is None:
            return None
        self._left = 0
        return NodeLost(nodes=[match[1]], by="Open MPI")
