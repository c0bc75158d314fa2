"""An exception of a data loader's worker, or of a replica, which its rank raises again: the traceback of
where it was raised first stands in the message.

ValueError: Caught ValueError in DataLoader worker process 3.
Original Traceback (most recent call last):
  File "/job/data.py", line 35, in __getitem__
ValueError: bad row
"""

from __future__ import annotations

from ...model.log_facts import AnyFact, PythonError
from ...stacks.user_code import is_users
from ...text.late import late
from .prefix import Speaker

HEAD = "Original Traceback (most recent call last)"
_CAUGHT = late(r"^Caught (\w{1,80}) (in .{1,80}?)\.?$")


class RaisedAgain:
    """Of one file."""

    def __init__(self) -> None:
        self._outer: dict[Speaker, PythonError] = {}

    def keep(self, error: AnyFact, speaker: Speaker) -> None:
        """An error that was kept, of this speaker."""
        self._outer.pop(speaker, None)
        if isinstance(error, PythonError) and _CAUGHT.match(error.message) is not None:
            self._outer[speaker] = error

    def take(self, inner: PythonError, speaker: Speaker) -> bool:
        """Whether an error, which ends an original traceback, is what the last one was raised from: that one
        then has its place and its words.
        """
        outer = self._outer.get(speaker)
        match = _CAUGHT.match(outer.message) if outer is not None else None
        if outer is None or match is None or match[1] != inner.error:
            return False
        del self._outer[speaker]
        outer.message = f"{inner.message} (caught {match[2]})" if inner.message else outer.message
        if inner.frame is not None and is_users(inner.frame):
            outer.frame = inner.frame
        outer.frames = inner.frames
        outer.rule, outer.role, outer.values = inner.rule, inner.role, inner.values
        return True
