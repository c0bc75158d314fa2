"""What holds a process, as the sentence says it: a debugger, a child, a queue, typed input."""

from __future__ import annotations

from functools import singledispatch

from .. import findings as f
from . import terms


@singledispatch
def holding(what: object) -> str:
    """One clause, such as "its child 8012 is dead (exit code 1)"; "" where nothing is known."""
    return ""


@holding.register
def _(what: f.Debugger) -> str:
    return f"{what.tool} waits for a command there"


@holding.register
def _(what: f.TypedInput) -> str:
    return "it waits for typed input"


@holding.register
def _(what: f.ChildEnded) -> str:
    return f"its child {what.pid} is dead ({terms.end(what.end)})"


@holding.register
def _(what: f.ChildStopped) -> str:
    by = f" by process {what.tracer}" if what.tracer else ""
    return f"its child {what.pid} is stopped{by}"


@holding.register
def _(what: f.AtWorker) -> str:
    return f"its worker {what.pid} is in {terms.frame(what.frame)}"


@holding.register
def _(what: f.OnPool) -> str:
    return "it waits for a task of its Pool, whose workers are all idle"


@holding.register
def _(what: f.OnQueue) -> str:
    return f"it waits to {'put into a full' if what.full else 'take from an empty'} queue"


@holding.register
def _(what: f.BehindThread) -> str:
    return f"{terms.thread(what.name, what.tid)} has the GIL in {terms.frame(what.frame)}"


@holding.register
def _(what: f.LostThread) -> str:
    return f"its thread '{what.name}' is gone"


@holding.register
def _(what: f.OnChild) -> str:
    return f"it waits for its child {what.pid} ({terms.command(what.command)}){_stuck(what)}"


def _stuck(child: f.OnChild) -> str:
    if child.unread:
        return ", which is blocked writing into a pipe"
    if child.frame is not None:
        return f", which is in {terms.frame(child.frame)}"
    return f", which is blocked in {child.call}" if child.call else ""
