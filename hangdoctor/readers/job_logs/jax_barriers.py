"""Who did not come to a barrier of JAX's coordinator, in the lines below its error.

DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: sync. Timed out task names:
/job:jax_worker/replica:0/task:3

From 2024 on two lines more lie between: how many came, and which of them was the first; in 2025 a
task's name became its number:

The first task at the barrier: 1. Some timed out task names:
2

At the barrier of its shutdown (`Shutdown::...`) are those that came to their end, after a failure
too: who is not there may wait for them, and is not read. The only one that is there ended by
itself.
"""

from __future__ import annotations

from ...model.log_facts import BarrierMissed, KnownError
from ...text.late import late

BEGIN = "Barrier timed out. "
_NAME = late(
    r"Barrier timed out\. (?:Barrier_id|Id): (?P<name>[^\s]{1,120}?)(?:::\d{1,9})?\.(?:\s|$)"
)
_TASK = late(r"^\s*/job:\w{1,40}/replica:0/task:(\d{1,7})\s*$")
_NUMBER = late(r"^\s{0,8}(\d{1,7})\s{0,8}$")
_SHUTDOWN = "Shutdown::"
_LIST = "timed out task names:"
_ONE_CAME = late(r"^# of tasks that reached the barrier: 1/\d{1,7}\.")
_FIRST = late(r"^The first task at the barrier: (?:/job:\w{1,40}/replica:0/task:)?(\d{1,7})\.")
DOWN = "jax_down_first"  # a rule
_BETWEEN = ("# of tasks that reached", "The first task at the barrier")
JAX = "jax"


class JaxBarriers:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._name: str | None = None  # of the barrier whose tasks may follow
        self._listed = False  # the line above begins or goes on with the list of them
        self._shutdown = 0  # lines in which the only one at that barrier may be named

    def feed(self, text: str) -> BarrierMissed | KnownError | None:
        """A task that did not come, or the only one that came to its end."""
        if BEGIN in text and (match := _NAME.search(text)) is not None:
            own = not match["name"].startswith(_SHUTDOWN)
            self._name = match["name"] if own else None
            self._listed = own and text.rstrip().endswith(_LIST)
            self._shutdown = 0 if own else len(_BETWEEN)
            return None
        if self._shutdown:
            return self._at_shutdown(text)
        if self._name is None:
            return None
        task = _TASK.match(text) or (_NUMBER.match(text) if self._listed else None)
        self._listed = task is not None or text.rstrip().endswith(_LIST)
        if task is not None:
            return BarrierMissed(missed_ranks=[int(task[1])], name=self._name, by=JAX)
        if not any(words in text for words in _BETWEEN):
            self._name = None
        return None

    def _at_shutdown(self, text: str) -> KnownError | None:
        self._shutdown -= 1
        first = _FIRST.match(text)
        if first is not None and not self._shutdown:
            return KnownError(rule=DOWN, role="note", rank=int(first[1]))
        if _ONE_CAME.match(text) is None:
            self._shutdown = 0
        return None
