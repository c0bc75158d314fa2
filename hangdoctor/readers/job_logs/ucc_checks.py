"""Which ranks had not come to an operation that UCC's own check ended, over a few lines.

Aborting comms #12 (op=ALLTOALL_BASE) due to the problematic ranks: [ 0 ]
  Ranks [0] are 'Collective wasn't posted'

What it says of a rank's state otherwise tells nothing of who came.
"""

from __future__ import annotations

import re

from ...model.log_facts import Desync
from ...text.late import late

BEGIN = "Aborting comms #"
_ENDED = late(r"Aborting comms #(?P<seq>\d{1,15})(?: \(op=(?P<op>\w{1,40})\))?")
_STATE = late(r"^\s*Ranks \[(?P<ranks>[\d, ]{1,4000})\] are '(?P<state>.{1,80})'\s*$")
_ABSENT = "posted"  # "Collective wasn't posted"
_NEAR = 12  # lines of one report


class UccChecks:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._seq, self._op = -1, ""
        self._left = 0

    def feed(self, text: str) -> Desync | None:
        """The ranks that did not come."""
        if BEGIN in text and (match := _ENDED.search(text)) is not None:
            self._seq, self._op = int(match["seq"]), match["op"] or ""
            self._left = _NEAR
            return None
        if self._left <= 0:
            return None
        self._left -= 1
        state = _STATE.match(text)
        if state is None or _ABSENT not in state["state"]:
            return None
        ranks = sorted({int(number) for number in re.findall(r"\d{1,7}", state["ranks"])})
        return Desync(ranks=ranks, seq=self._seq, op=self._op, how="not_joined", by="ucc")
