"""Stacks that faulthandler printed at its limit and that do not say whose they are: few processes are
elsewhere, all others wait in a collective.

Each process prints its main thread's address, which tells processes apart that were started anew;
forked ones have the same, and then nothing is said. That processes end at the limit says less.
"""

from __future__ import annotations

import signal

from ...model.frame import Frame
from ...model.log_facts import (
    AnyFact,
    Cancelled,
    Ended,
    KnownError,
    NodeLost,
    OomKill,
    Progress,
    PythonError,
    ThreadStack,
)
from ...stacks.place_rules import COMMUNICATION, Place
from ...stacks.place_search import find_place
from ..confidence import Ground, sure
from ..findings import Finding, Op
from ..findings.log_places import AloneInStacks
from .candidate import First
from .scene import Scene

_LEAST = 3  # processes, before one can stand out
_THREAD_STARTS = ("_bootstrap", "_bootstrap_inner")  # outermost frames of all but the main thread
_PROBE = "/hangdoctor/probe/"
_BY_LAUNCHER = (-signal.SIGABRT, -signal.SIGTERM)
_FAILED = (Cancelled, NodeLost, OomKill)


def elsewhere(scene: Scene) -> First | None:
    """Fewer than half, where the others are all in one collective; None where something failed, or the
    job went on.
    """
    stacks = _of_processes(scene)
    if len(stacks) < _LEAST or not all(map(_follows, scene.facts)):
        return None
    begin = min(stack.line for stack in stacks)
    if any(f.file == stacks[0].file and f.line > begin for f in scene.of(Progress)):
        return None
    places = [(stack, find_place(stack.frames, blocked=True)) for stack in stacks]
    waiting = [place for _, place in places if place.kind in COMMUNICATION]
    outside = [(stack, place) for stack, place in places if place.kind not in COMMUNICATION]
    one = len({(place.op, place.at) for place in waiting}) == 1
    if not one or len({str(_frame(place, stack)) for stack, place in outside}) != 1:
        return None
    if len(outside) >= len(waiting):
        return None
    return _found(outside, waiting[0], processes=len(stacks))


def _found(outside: list[tuple[ThreadStack, Place]], waits: Place, processes: int) -> First:
    stack, place = outside[0]
    op = Op(waits.op, frame=waits.frame)
    finding = Finding(
        kind="not_entered",
        ranks=[],
        story=AloneInStacks(len(outside), processes, op),
        confidence=sure(Ground.LOG_STACKS),
        frame=place.frame or stack.frames[0],
    )
    finding.where.op = waits.op
    finding.where.frame = str(finding.frame)
    return First(finding, [one for one, _ in outside], False)


def _frame(place: Place, stack: ThreadStack) -> Frame:
    return place.frame or stack.frames[0]


def _of_processes(scene: Scene) -> list[ThreadStack]:
    """The last stack of each main thread; [] where some are of a rank that is known, or not printed at
    a limit.
    """
    mains = [stack for stack in scene.of(ThreadStack) if _is_main(stack)]
    if any(stack.rank >= 0 or not stack.guarded or stack.fatal for stack in mains):
        return []
    return list({stack.thread: stack for stack in mains}.values())


def _is_main(stack: ThreadStack) -> bool:
    if not stack.frames:
        return False
    outermost = stack.frames[-1]
    return outermost.name not in _THREAD_STARTS and _PROBE not in outermost.file


def _follows(fact: AnyFact) -> bool:
    """Whether it is no failure, but what an exit at that limit brings with it."""
    if isinstance(fact, PythonError | KnownError):
        return fact.role == "launcher"
    if isinstance(fact, Ended):
        return fact.code > 0 or fact.code in _BY_LAUNCHER
    return not isinstance(fact, _FAILED)
