"""The stack of the call that timed out, which PyTorch's flight recorder prints below its own line, one frame a line.

Stack trace of the failed collective:
#0 all_reduce from /venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:2810
"""

from __future__ import annotations

from ...model.frame import Frame
from ...text.late import late
from .prefix import Said, Speaker

_FRAME = late(r"^\s*#\d{1,4}\s+(\S{1,200}) from (\S{1,400}):(\d{1,9})\s*$")
_HEAD = "Stack trace of the failed collective:"
_NOBODY = Said().speaker()


class RecordedStacks:
    """Of one file."""

    def __init__(self) -> None:
        self._open: dict[Speaker, Said] = {}
        self._last: Said | None = None  # who printed the last one, whose frames may have no prefix

    def begins(self, said: Said) -> bool:
        """Whether a line is the head of such a stack."""
        if not said.text.startswith(_HEAD):
            return False
        self._open[said.speaker()] = self._last = said
        return True

    def frame(self, said: Said) -> tuple[Said, Frame] | None:
        """The frame of a line in an open stack, with who printed the head of that; None where it is none."""
        key = said.speaker()
        head = self._open.get(key, self._last if key == _NOBODY else None)
        if head is None:
            return None
        match = _FRAME.match(said.text)
        if match is None:
            self._open.pop(key, None)
            self._last = None
            return None
        return head, Frame(match[1], match[2], int(match[3]))
