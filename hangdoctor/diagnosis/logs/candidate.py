"""A candidate for what failed first, and how its facts are shown."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ...model.frame import Frame
from ...model.log_facts import (
    AnyFact,
    BarrierMissed,
    Desync,
    Ended,
    GpuShared,
    KnownError,
    Mismatch,
    PythonError,
    StoreCount,
)
from ...text.late import late
from ..findings import Finding
from ..findings.log_stories import FailedFirst, Someone

Error = PythonError | KnownError
_NCCL = late(r" NCCL (?:INFO|WARN|TRACE|ABORT)\b")
_OF_OTHERS = (Desync, BarrierMissed, Mismatch, StoreCount)


class First(Struct):
    """A candidate, and the facts that show it."""

    finding: Finding
    facts: list[AnyFact]
    named: bool  # ranks or nodes are known


def someone(fact: AnyFact, alike: Iterable[AnyFact] = ()) -> Someone:
    """What is known of a speaker without a rank; of several tasks, which say the same, of all."""
    if fact.rank >= 0:
        return Someone()
    of_nccl = _of_nccl(fact, alike)
    if of_nccl is not None:
        return of_nccl
    processes = {(other.node, other.pid) for other in alike if other.pid and other.rank < 0}
    if len(processes) > 1 and not fact.worker and fact.local < 0 and fact.task < 0:
        return Someone(pid=fact.pid, processes=len(processes))
    tasks = sorted({other.task for other in alike if other.task >= 0})
    if len(tasks) > 1:
        return Someone(tasks=tuple(tasks))
    known = Someone(fact.local, fact.task, fact.pid, fact.worker, devices=_device(fact))
    if known != Someone():
        return known
    pids = {other.pid for other in alike if other.pid}
    if not pids:
        return Someone(devices=_only_gpu([fact, *alike]))
    return Someone(pid=pids.pop()) if len(pids) == 1 else known


def is_named(fact: AnyFact) -> bool:
    """Whether its line tells which process it is of."""
    return max(fact.rank, fact.local, fact.task) >= 0 or bool(fact.pid or fact.worker)


def _device(fact: AnyFact) -> tuple[int, ...]:
    """The device of its process, where a line beside its error tells it."""
    told = fact.values.get("device", "") if isinstance(fact, Error) else ""
    return (int(told),) if fact.pid and told.isdigit() else ()


def _only_gpu(alike: Iterable[AnyFact]) -> tuple[int, ...]:
    """The one GPU that lines without a name speak of, as of a memory that is full."""
    errors = [f for f in alike if isinstance(f, Error)]
    told = {f.values.get("on_gpu", "") for f in errors}
    return tuple(map(int, told)) if len(told) == 1 and "" not in told else ()


def _of_nccl(fact: AnyFact, alike: Iterable[AnyFact]) -> Someone | None:
    """By the process and its device, which stand on a line of NCCL's; the device is no rank."""
    if not fact.pid or fact.local < 0 or fact.worker or _NCCL.search(fact.says) is None:
        return None
    same = [f for f in alike if f.rank < 0 and f.local >= 0 and _NCCL.search(f.says)]
    processes = {(f.node, f.pid) for f in same}
    own = (fact.node, fact.pid)
    devices = sorted({f.local for f in [fact, *same] if (f.node, f.pid) == own})
    several = len(processes) if len(processes) > 1 else 0
    return Someone(pid=fact.pid, devices=tuple(devices), processes=several)


def one_place(facts: Iterable[AnyFact]) -> Frame | None:
    """Where they were, by the stacks that their runtimes printed, if that is one place."""
    ended = [f for f in facts if isinstance(f, Ended | KnownError)]
    places = [f.place for f in ended if f.place is not None]
    return places[0] if len({str(place) for place in places}) == 1 else None


def quotes(facts: Iterable[AnyFact], most: int = 4) -> list[AnyFact]:
    """The facts that are shown as evidence: one of each speaker, or pair of ranks, and of each line."""
    seen: set[tuple[object, ...]] = set()
    lines: set[tuple[int, int]] = set()
    kept: list[AnyFact] = []
    for fact in facts:
        line = (fact.file, fact.line)
        pair = sorted((fact.one, fact.other)) if isinstance(fact, GpuShared) else []
        key = (fact.rank, fact.node, *pair)
        if key not in seen and line not in lines:
            kept.append(fact)
        seen.add(key)
        lines.add(line)
    return kept[:most]


def whose(fact: AnyFact, finding: Finding) -> tuple[int, ...]:
    """The ranks that a fact is evidence of."""
    if isinstance(fact, GpuShared):
        return tuple(sorted((fact.one, fact.other)))
    if says_of_others(fact):
        return tuple(finding.ranks)
    story = finding.story
    if fact.rank < 0 and isinstance(story, FailedFirst) and (story.one_of or story.others_on):
        return ()
    return (fact.rank,) if fact.rank >= 0 else tuple(finding.ranks)


def says_of_others(fact: AnyFact) -> bool:
    """Whether the rank that says it is not the one that it is of."""
    return isinstance(fact, _OF_OTHERS)
