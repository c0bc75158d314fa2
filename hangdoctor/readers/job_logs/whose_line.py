"""Whose failure a line tells, where it names one rank or process: a line right beside it without a name may be
of the same one.
"""

from __future__ import annotations

from ...text import redaction
from ...text.late import late
from ...text.plain import readable
from .failure_words import judged
from .habits import Habits
from .named_in_line import named
from .prefix import Said, strip
from .stamps import Clock

_LONG = 300  # characters that are looked through
# Python's, above the traceback of a process that it started
_STARTED = late(r"\s{0,8}Process ([A-Za-z][\w #.-]{0,40}\d):\s{0,8}$")


def whose(line: str) -> str:
    """``rank 9``, ``process 812 on n4``; "" for a line that tells no failure, or nobody's."""
    started = _STARTED.match(line)
    if started is not None:
        return f"process {started[1]}"
    said = strip(line[:_LONG], Said(), Habits(), Clock())
    if judged(said.text, said.level or line) is None:
        return ""
    who = named(said.text)
    if who.launcher:
        return ""
    return readable(redaction.text(_name(said, said.own_rank(), who.rank, who.pid, who.node)))


def _name(said: Said, own: int, rank: int, pid: int, node: str) -> str:
    if max(own, rank) >= 0:
        return f"rank {own if own >= 0 else rank}"
    if said.worker:
        return f"worker {said.worker}"
    process, host = said.pid or pid, said.node or node
    if not process:
        return ""
    return f"process {process} on {host}" if host else f"process {process}"
