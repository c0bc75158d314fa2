"""Whoever crashed and runs no rank, as the stacks below the line of its crash show: a launcher's agent."""

from __future__ import annotations

from ...model.log_facts import KnownError, PythonError, ThreadStack
from ...stacks import no_ranks
from ..findings.log_stories import Someone
from .scene import Scene

_END = 1 << 62


def without_rank(scene: Scene, fact: KnownError | PythonError) -> Someone | None:
    """None of a rank, and of who may be one."""
    if fact.rank >= 0 or not isinstance(fact, KnownError):
        return None
    crashes = [f for f in scene.of(KnownError) if (f.rule, f.file) == (fact.rule, fact.file)]
    until = min((f.line for f in crashes if f.line > fact.line), default=_END)
    stacks = [s for s in scene.of(ThreadStack) if s.fatal and s.file == fact.file]
    own = [s for s in stacks if s.pid == fact.pid and fact.line < s.line < until]
    parts = {no_ranks.part_of(stack.frames) for stack in own} - {""}
    return Someone(pid=fact.pid, part=parts.pop()) if len(parts) == 1 else None
