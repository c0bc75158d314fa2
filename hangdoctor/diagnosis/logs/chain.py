"""The chain: what happened in the order of time, at most ten lines, each with its file and line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard

from ...model.log_ends import CRASHES
from ...model.log_facts import (
    MPI_ABORT,
    AnyFact,
    BarrierMissed,
    Cancelled,
    Desync,
    Ended,
    GlooTimeout,
    KnownError,
    Mismatch,
    NoBeat,
    NodeLost,
    OomKill,
    PeerClosed,
    Progress,
    PythonError,
    Signalled,
    StoreCount,
    StoreWait,
    TimedOut,
    Told,
    Took,
    Unanswered,
    UnreadFailure,
)
from ..findings import Op
from ..findings.log_stories import Event, LoggedDeath
from ..findings.named import End
from . import threads
from .candidate import First, says_of_others
from .scene import LIMITS, Scene, nodes_named, op_name, ranks_named

MOST = 10
_ROLES: dict[type[AnyFact], str] = {
    Progress: "progress",
    TimedOut: "wait",
    GlooTimeout: "wait",
    Told: "consequence",
    PeerClosed: "consequence",
    PythonError: "consequence",
    KnownError: "consequence",
    Unanswered: "wait",
    BarrierMissed: "wait",
    Desync: "wait",
    Mismatch: "wait",
    StoreCount: "wait",
    StoreWait: "wait",
    Ended: "end",
    NoBeat: "wait",
    OomKill: "end",
    Signalled: "end",
    NodeLost: "end",
    Cancelled: "end",
    UnreadFailure: "cause",
    Took: "",  # where it is no cause
}
_ACCOUNT = "slurm job"  # Slurm's own account of the whole job, in its words
_IN_WORDS = (_ACCOUNT, MPI_ABORT)  # ends that are told as the log has them
_TWICE = ("consequence", "consequence")  # a known line about another rank's end says nothing new
_ROW = "exitcode"  # the line of torchelastic's table that has how a rank ended
_KEEP = {"cause": 0, "end": 2, "wait": 1, "consequence": 3, "progress": 4}


def chain(scene: Scene, found: Sequence[First]) -> list[Event]:
    """The events of a scene; facts of one kind that say the same are one event of several ranks."""
    causes = {id(fact): first for first in found for fact in _causes(first)}
    events: dict[tuple[object, ...], list[AnyFact]] = {}
    told = {(f.file, f.line) for f in scene.of(PythonError)}
    every = _with_unread(scene, found)
    said_once = [fact for fact in every if not _says_again(fact, told)]
    shown = {(one.file, one.line) for one in said_once if _role(one, causes) == "cause"}
    nameless = {id(fact) for fact in _of_other_processes(every)}
    for fact in said_once:
        role = _role(fact, causes)
        if role in ("consequence", "wait") and not isinstance(fact, TimedOut):
            role = "" if (fact.file, fact.line) in shown else role  # it is there as the cause
        if role:
            key = (role, *_likeness(fact), id(fact) in nameless)
            events.setdefault(key, []).append(fact)
    places = _places(every)
    for facts in events.values():
        facts.sort(key=lambda fact: places[id(fact)])
    ordered = [(places[id(facts[0])], key, facts) for key, facts in events.items()]
    best = sorted(ordered, key=lambda e: (_KEEP[str(e[1][0])], e[0]))[:MOST]
    ordered = sorted(best, key=lambda e: e[0])
    return [
        _event(scene, str(key[0]), facts, causes.get(id(facts[0]))) for _, key, facts in ordered
    ]


def _places(every: Sequence[AnyFact]) -> dict[int, int]:
    """Their order; rows of torchelastic's table, which has the first one last, by its own clock."""
    places = {id(fact): place for place, fact in enumerate(every)}
    rows = [f for f in every if isinstance(f, Ended) and f.at > 0 and f.says.startswith(_ROW)]
    for file in {f.file for f in rows}:
        own = [f for f in rows if f.file == file]
        slots = [places[id(f)] for f in own]
        by_clock = sorted(own, key=lambda f: (f.attempt, f.at, f.line))
        places |= {id(f): slot for f, slot in zip(by_clock, slots, strict=True)}
    return places


def _of_other_processes(every: Sequence[AnyFact]) -> list[KnownError]:
    """Lines on crashes of processes whose rank is not known, beside those of ranks: they are no rank's."""
    crashes = [f for f in every if isinstance(f, KnownError) and f.rule in CRASHES]
    lines = {(f.file, f.line) for f in crashes if f.rank >= 0}
    pids = {f.pid for f in crashes if f.rank >= 0}
    own = [f for f in crashes if f.rank < 0 and f.pid and f.pid not in pids]
    return [f for f in own if lines and (f.file, f.line) not in lines]


def _causes(found: First) -> list[AnyFact]:
    """Its facts; an exit, or a call of MPI_Abort, only follows from the words before it."""
    ended_itself = isinstance(found.finding.story, LoggedDeath) and found.finding.kind == "error"
    return [f for f in found.facts if not (ended_itself and isinstance(f, Ended))]


def _with_unread(scene: Scene, found: Sequence[First]) -> list[AnyFact]:
    """The facts in order, with those of the found that no rule knows at their places in their files."""
    every: list[AnyFact] = [*scene.facts]
    for fact in [f for one in found for f in one.facts if isinstance(f, UnreadFailure)]:
        later = [i for i, f in enumerate(every) if f.file == fact.file and f.line > fact.line]
        every.insert(later[0] if later else len(every), fact)
    return every


def _says_again(fact: AnyFact, told: set[tuple[int, int]]) -> bool:
    """Whether the error on its line says it."""
    repeats = isinstance(fact, PeerClosed | GlooTimeout | StoreWait | KnownError)
    return repeats and (fact.file, fact.line) in told


def _role(fact: AnyFact, causes: Mapping[int, First]) -> str:
    if type(fact) not in _ROLES:
        return ""
    role = "cause" if id(fact) in causes else _ROLES[type(fact)]
    itself = isinstance(fact, Told) and fact.by == -1
    if itself or isinstance(fact, TimedOut):
        return "wait"
    if isinstance(fact, PythonError):
        return _role_of_error(fact, role)
    if isinstance(fact, KnownError):
        left_out = fact.role in ("launcher", "note") or (fact.role, role) == _TWICE
        return "" if left_out else role
    return role


def _role_of_error(error: PythonError, role: str) -> str:
    if error.survived or error.role in ("launcher", "note"):
        return "end" if threads.gone_on_after(error) and error.thread else ""
    return "wait" if error.rule in LIMITS else role


def _likeness(fact: AnyFact) -> tuple[object, ...]:
    """What facts have in common that are one event."""
    kind = type(fact).__name__
    if isinstance(fact, TimedOut):
        return (kind, fact.op, fact.seq, fact.group, fact.numel_in)
    if isinstance(fact, Ended):
        return (kind, fact.code, fact.by in _IN_WORDS)
    if isinstance(fact, PythonError):
        return (kind, fact.error, fact.rule, fact.role)
    if isinstance(fact, KnownError):
        return (kind, fact.rule)
    if isinstance(fact, GlooTimeout):
        return (kind, fact.limit_ms)
    if isinstance(fact, PeerClosed | Unanswered):
        return (kind, fact.library)
    if isinstance(fact, Told):
        return (kind, fact.by == -1)
    if isinstance(fact, Progress):
        return (kind, fact.file)
    if isinstance(fact, BarrierMissed) and fact.name:
        return (kind, fact.name, fact.by)
    if isinstance(fact, Mismatch) and fact.other < 0:
        return (kind, fact.file, fact.one_op)  # a list, one rank a line
    return (kind, fact.says[:80])


def _event(scene: Scene, role: str, facts: list[AnyFact], cause: First | None) -> Event:
    first = facts[0]
    ranks = tuple(ranks_named(facts))
    if role == "cause" and cause is not None and says_of_others(first):
        ranks = tuple(cause.finding.ranks)
    nodes = nodes_named(facts)
    return Event(
        role=role,  # type: ignore[arg-type]
        file=scene.logs.name_of(first.file),
        line=first.line,
        at=first.at,
        ranks=ranks,
        node=nodes.pop() if len(nodes) == 1 else "",
        fact=_kind(first),
        says=threads.worded(first) if _worded(first) else first.says,
        seconds=_seconds(facts),
        op=Op(op_name(first.op), first.seq) if isinstance(first, TimedOut) else None,
        end=End(first.code) if isinstance(first, Ended) and first.by not in _IN_WORDS else None,
    )


def _kind(fact: AnyFact) -> str:
    """The kind of fact; a rank that timed out itself is told apart from one that only heard of it."""
    itself = isinstance(fact, Told) and fact.by == -1
    return "ToldByItself" if itself else type(fact).__name__


def _worded(fact: AnyFact) -> TypeGuard[PythonError]:
    return isinstance(fact, PythonError) and bool(fact.error)


def _seconds(facts: Iterable[AnyFact]) -> float:
    waits = [f.ran_ms for f in facts if isinstance(f, TimedOut)]
    waits += [f.limit_ms for f in facts if isinstance(f, GlooTimeout)]
    return max(waits, default=0.0) / 1000
