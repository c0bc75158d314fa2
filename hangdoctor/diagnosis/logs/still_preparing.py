"""Data that was still being made ready when the ranks that waited for it came to their time limit.

One process tokenizes or maps the data set for all, and those that wait print nothing: the bar that has
not come to its end is its. Whose it is shows only where one rank alone did not time out.
"""

from __future__ import annotations

from ...model.log_facts import AnyFact, KnownError, Progress, PythonError, TimedOut, WaitsFor
from ...text.late import late
from ..confidence import Ground, sure
from ..findings import Finding, Op, Waiters
from ..findings.log_counts import StillPreparing
from .candidate import First
from .scene import LIMITS, Scene, op_of, ranks_named

_ELAPSED = late(r"\[(?:(\d{1,3}):)?(\d{1,2}):(\d{2})<")  # as tqdm has it
_LONG_S = 300.0  # a shorter wait may last as long by chance
_APART_S = 15.0  # between the begin of a wait and of a bar that is drawn a little later
_BARRIER = "barrier_victim"  # a rule: it came to a monitored barrier, and others did not
_MAKES_READY = late(
    r"tokeniz|\bmap|filter|pack|generating \w+ split|saving the dataset|preprocess|group|cach|index"
)


def still_preparing(scene: Scene) -> First | None:
    """Who was not done with it, as far as that shows; None where the last bar before the limits of the waits
    counts something else, or had come to its end.
    """
    waits: list[AnyFact] = [*scene.of(TimedOut)]
    waits += [f for _, f in scene.positioned(KnownError, PythonError) if _reached_a_limit(f)]
    if not waits:
        return None
    last = {f.file: f.line for f in sorted(waits, key=lambda f: f.line)}
    before = [f for f in scene.of(Progress) if f.line <= last.get(f.file, 0)]
    bar = max(before, key=lambda f: f.line, default=None)
    if bar is None or not 0 <= bar.iteration < bar.total:
        return None
    alone = not _MAKES_READY.search(bar.part)
    if alone and not _began_with_them(bar, scene.of(TimedOut)):
        return None
    waiting = ranks_named(waits)
    ranks = _missing(scene, waiting)
    if bar.rank in waiting:
        return None
    timed_out = [f for f in waits if isinstance(f, TimedOut)]
    op = op_of(timed_out) if timed_out else Op("")
    seconds = max((f.ran_ms for f in timed_out), default=0.0) / 1000
    finding = Finding(
        kind="slow",
        ranks=ranks,
        story=StillPreparing(op, bar.says, f"{scene.logs.name_of(bar.file)}:{bar.line}", alone),
        confidence=sure(Ground.LOG_PREPARES if ranks else Ground.LOG_SOMEONE_PREPARES),
        nodes=scene.nodes(ranks),
        waiters=Waiters(tuple(waiting), op, seconds),
    )
    return First(finding, [bar, *waits], True)


def _began_with_them(bar: Progress, waits: list[TimedOut]) -> bool:
    """Whether it has run for just as long as the others have waited: what it counts is what these waited for."""
    match = _ELAPSED.search(bar.says)
    longest = max((wait.ran_ms for wait in waits), default=0.0) / 1000
    if match is None or longest < _LONG_S:
        return False
    elapsed = int(match[1] or 0) * 3600 + int(match[2]) * 60 + int(match[3])
    return abs(elapsed - longest) <= _APART_S


def _reached_a_limit(fact: AnyFact) -> bool:
    if not isinstance(fact, KnownError | PythonError):
        return False
    return fact.role == "consequence" and fact.rule in (*LIMITS, _BARRIER)


def _missing(scene: Scene, waiting: list[int]) -> list[int]:
    """The only rank that did not time out, of all that are known, or that a line says is waited for."""
    awaited = {f.awaited for f in scene.of(WaitsFor) if f.awaited >= 0} - set(waiting)
    if len(awaited) == 1:
        return sorted(awaited)
    everyone = range(max([*waiting, *scene.everyone], default=-1) + 1)
    missing = sorted(set(everyone) - set(waiting))
    return missing if len(missing) == 1 and len(waiting) > 1 else []
