"""What earlier lines of a speaker told that later ones add to: the operation that it timed out in, and which
process of its node it is.
"""

from __future__ import annotations

from ...model.frame import Frame
from ...model.log_facts import AnyFact, Ended, TimedOut
from .prefix import Said, Speaker
from .python_frames import own_frame


class ToldEarlier:
    """Of one file."""

    def __init__(self) -> None:
        self._waits: dict[Speaker, TimedOut] = {}
        self._spawned: dict[Speaker, int] = {}

    def take(self, fact: AnyFact, kept: AnyFact, said: Said) -> None:
        """A fact of a line, and the one that was kept of it, which an earlier line may have told."""
        speaker = said.speaker()
        if isinstance(kept, TimedOut):
            self._waits[speaker] = kept
        if isinstance(fact, Ended) and fact.by == "spawn":
            self._spawned[speaker] = fact.local
        wait = self._waits.get(speaker)
        work = getattr(fact, "at_work", -1)
        if wait is not None and work == wait.seq >= 0 and not wait.group:
            wait.group = getattr(fact, "group", "")

    def spawned(self, said: Said) -> int:
        """The local rank of the process whose traceback torch's spawn prints in these lines; -1 for none."""
        return self._spawned.pop(said.speaker(), -1)

    def add_recorded(self, said: Said, frame: Frame) -> TimedOut | None:
        """The line of the program that made the call which timed out; a new time-out where the line that
        names it is missing.
        """
        wait = self._waits.get(said.speaker())
        if wait is None:
            missing = said.rank >= 0
            return TimedOut(op=frame.name, says=said.text) if missing else None
        best = own_frame([frame, *([wait.frame] if wait.frame is not None else [])])
        wait.frame = wait.frame if wait.frame is not None and best is wait.frame else frame
        return None
