"""What the logs say happened, a line an event."""

from __future__ import annotations

import time

from ...model.diagnosis import Happening
from ..findings.log_stories import Event
from . import terms

_NO_YEAR = 978_307_200.0  # the end of the year that stands for an unknown one


def happening(event: Event) -> Happening:
    """A line of the chain."""
    return Happening(
        role=event.role,
        ranks=list(event.ranks),
        node=event.node or None,
        at=_stamp(event.at),
        file=event.file,
        line=event.line,
        says=_says(event),
    )


def _stamp(at: float) -> str:
    if at <= 0:
        return ""
    form = "%Y-%m-%d %H:%M:%S" if at > _NO_YEAR else "%m-%d %H:%M:%S"
    return time.strftime(form, time.gmtime(at))


def _says(event: Event) -> str:
    if event.fact == "TimedOut" and event.op is not None:
        after = f" after {terms.duration(event.seconds)}" if event.seconds > 0 else ""
        return f"timed out in {terms.op(event.op)}{after}"
    if event.fact == "GlooTimeout":
        return f"waited {terms.duration(event.seconds)} in gloo, until its limit"
    if event.fact == "Ended" and event.end is not None:
        return f"ended: {terms.end(event.end)}"
    if event.fact == "PeerClosed":
        return f"lost a connection: {terms.cut(event.says, 120)}"
    if event.fact == "ToldByItself":
        return "timed out in an operation"
    if event.fact == "Told":
        return "heard from another rank that an operation timed out"
    return terms.cut(event.says, 160)
