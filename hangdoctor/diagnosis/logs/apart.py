"""Few ranks that were elsewhere when all others waited in a collective: by where an interrupt met them,
by the words of the program's own guard, or because they had left.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence

from ...model.frame import Frame
from ...model.log_facts import Ended, Guarded, KilledByLauncher, Progress, PythonError
from ..confidence import Ground, sure
from ..findings import Clue, Finding, Op, Waiters
from ..findings.log_stories import GuardFound, InterruptedIn, LoggedDeath, PrintedLess, Quote
from ..findings.named import End
from .candidate import First
from .scene import Scene, ranks_named

_COLLECTIVES = (
    *("all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter", "broadcast"),
    *("barrier", "all_to_all", "gather", "scatter", "collective"),
)
_ENOUGH = 3  # ranks that print their steps
_STILL_S = 20.0  # without a step
_LIBRARY = ("torch/distributed/", "torch/autograd/", "deepspeed/comm/")
_INNER = 8  # frames: of those outside, some are the launcher's


def interrupted(scene: Scene, idle: bool = False) -> First | None:
    """Ctrl-C: the ranks that it met outside of a collective, where it met all others in one, which had
    waited for long. `idle`: the job is known to have stopped before.
    """
    met = met_outside(scene)
    if met is None or not (idle or _had_stopped(scene, met[0])):
        return None
    outside, inside = met
    ranks = ranks_named(outside)
    finding = Finding(
        kind="not_entered",
        ranks=ranks,
        story=InterruptedIn(tuple(sorted(inside))),
        confidence=sure(Ground.LOG_INTERRUPTED),
        nodes=scene.nodes(ranks),
        frame=outside[0].frame,
    )
    finding.where.frame = str(outside[0].frame)
    return First(finding, [*outside], True)


def met_outside(scene: Scene) -> tuple[list[PythonError], set[int]] | None:
    """(where Ctrl-C met the few outside of a collective, the ranks that it met in one); None where
    that is not all ranks. Of a job that goes on, it finds some rank elsewhere, too.
    """
    errors = [e for e in scene.of(PythonError) if e.rank >= 0]
    met = [e for e in errors if e.error == "KeyboardInterrupt"]
    inside = {e.rank for e in errors if e.rule == "peer_closed" or _in_library(e.frames[:_INNER])}
    outside = [e for e in met if e.rank not in inside and e.frame is not None]
    ranks = ranks_named(outside)
    if not _few(scene, ranks, inside) or set(scene.everyone) != inside | set(ranks):
        return None
    return outside, inside


def _had_stopped(scene: Scene, met: Sequence[PythonError]) -> bool:
    """Whether the job had printed no step for long, by the times beside them."""
    printed = max((fact.at for fact in scene.of(Progress)), default=0.0)
    at = min((fact.at for fact in met if fact.at > 0), default=0.0)
    return printed > 0 and at - printed >= _STILL_S


def guarded(scene: Scene) -> First | None:
    """The program's own guard says of these ranks another place than of all others."""
    facts = [f for f in scene.of(Guarded) if f.rank >= 0 and f.place]
    waiting = [f for f in facts if _is_collective(f.place)]
    elsewhere = [f for f in facts if not _is_collective(f.place)]
    ranks, inside = ranks_named(elsewhere), set(ranks_named(waiting))
    if not _few(scene, ranks, inside):
        return None
    op = Op(waiting[0].place)
    seconds = max(f.seconds for f in waiting)
    finding = Finding(
        kind="not_entered",
        ranks=ranks,
        story=GuardFound(elsewhere[0].place, op, elsewhere[0].iteration),
        confidence=sure(Ground.LOG_GUARD),
        nodes=scene.nodes(ranks),
        waiters=Waiters(tuple(sorted(inside)), op, seconds),
    )
    finding.where.op = waiting[0].place
    if elsewhere[0].iteration >= 0:
        finding.where.iteration = elsewhere[0].iteration
    return First(finding, [*elsewhere, *waiting], True)


def left(scene: Scene) -> First | None:
    """Ranks with output of their own, or between two that are listed, that torchelastic does not
    list among the failed, where it lists all others, and those only lost a connection: they had
    ended with exit code 0.
    """
    listed = [f for f in scene.of(Ended) if f.by == "torchelastic" and f.rank >= 0]
    lost = {v.rank for v in scene.victims() if v.rule == "peer_closed"}
    failed = set(ranks_named(listed))
    between: set[int] = set() if _swept(scene, listed) else _between(listed)
    ranks = sorted((set(scene.everyone) | between) - failed)
    spoke = set(ranks_named(scene.of(PythonError)))
    consequences = all(f.code in (1, -signal.SIGTERM, -signal.SIGABRT) for f in listed)
    known = bool(lost) and failed <= lost | spoke and not spoke - lost and consequences
    silent = set(ranks) <= between | set(scene.logs.heard) and not spoke & set(ranks)
    if not known or not silent or not _few(scene, ranks, failed):
        return None
    finding = Finding(
        kind="dead",
        ranks=ranks,
        story=LoggedDeath(End(0), left=True),
        confidence=sure(Ground.LOG_LEFT),
        nodes=scene.nodes(ranks),
    )
    for fact in [f for f in scene.facts if f.rank in ranks][-1:]:
        name = scene.logs.files[fact.file].name
        finding.clues = [Clue("log", (fact.rank,), Quote(name, fact.line, fact.says))]
    return First(finding, [], True)


def _swept(scene: Scene, listed: Sequence[Ended]) -> bool:
    """Whether the agent ended processes that are not in its table: they ran until then."""
    ended = scene.told_to_end() - {f.pid for f in listed}
    return bool(ended) or any(not f.pid for f in scene.of(KilledByLauncher))


def _between(listed: Sequence[Ended]) -> set[int]:
    """Ranks below the highest of one agent's table, whose ranks are in a row, that are not in it."""
    ranks = {f.rank for f in listed}
    if len({f.node for f in listed if f.node}) > 1 or len(ranks) < 2:
        return set()
    return set(range(min(ranks), max(ranks))) - ranks


def behind(scene: Scene) -> First | None:
    """The ranks whose last printed step is one that all others have left behind."""
    steps: dict[int, int] = {}
    for fact in scene.of(Progress):
        if fact.rank >= 0 and not fact.part:
            steps[fact.rank] = max(fact.iteration, steps.get(fact.rank, -1))
    if len(steps) < _ENOUGH or set(steps) != set(scene.everyone):
        return None
    furthest = max(steps.values())
    ranks = sorted(rank for rank, step in steps.items() if step < furthest)
    others = sorted(set(steps) - set(ranks))
    if not 0 < len(ranks) < len(others):
        return None
    finding = Finding(
        kind="not_entered",
        ranks=ranks,
        story=PrintedLess(max(steps[rank] for rank in ranks), furthest, tuple(others)),
        confidence=sure(Ground.LOG_BEHIND),
        nodes=scene.nodes(ranks),
    )
    last = [f for f in scene.of(Progress) if f.rank in ranks and f.iteration == steps[f.rank]]
    return First(finding, [*last], True)


def _few(scene: Scene, ranks: Sequence[int], others: Iterable[int]) -> bool:
    return 0 < 2 * len(ranks) <= max(len(scene.everyone), 2) and bool(set(others) - set(ranks))


def _in_library(frames: Iterable[Frame]) -> bool:
    return any(part in frame.file for frame in frames for part in _LIBRARY)


def _is_collective(place: str) -> bool:
    return any(name in place.lower() for name in _COLLECTIVES)
