"""Whoever crashed and runs no rank, as its traceback shows, or the stacks below the line of its crash: a
launcher's agent.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...model.log_facts import KnownError, PythonError, ThreadStack
from ...stacks import no_ranks, starters
from ..findings.log_stories import Someone
from .scene import Scene

_END = 1 << 62
# Rules of errors that speak of another process than who raised them
_OF_OTHERS = ("actor_died", "worker_died", "spark_task")


def without_rank(
    scene: Scene, fact: KnownError | PythonError, alike: Sequence[KnownError | PythonError]
) -> Someone | None:
    """None of a rank, and of who may be one; `alike`: what says the same."""
    if fact.rank >= 0 or fact.rule in _OF_OTHERS or any(f.task >= 0 for f in alike):
        return None  # a task is called one, and no rank
    raised = {starters.speaker(f.frames) for f in alike if isinstance(f, PythonError)}
    part = raised.pop() if len(raised) == 1 else ""
    if part:
        return Someone(pid=fact.pid, part=part)
    if not isinstance(fact, KnownError):
        return None
    crashes = [f for f in scene.of(KnownError) if (f.rule, f.file) == (fact.rule, fact.file)]
    until = min((f.line for f in crashes if f.line > fact.line), default=_END)
    stacks = [s for s in scene.of(ThreadStack) if s.fatal and s.file == fact.file]
    own = [s for s in stacks if s.pid == fact.pid and fact.line < s.line < until]
    parts = {no_ranks.part_of(stack.frames) for stack in own} - {""}
    return Someone(pid=fact.pid, part=parts.pop()) if len(parts) == 1 else None
