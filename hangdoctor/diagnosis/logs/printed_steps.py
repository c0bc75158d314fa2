"""Steps that ranks printed by their number, of which one rank has printed fewer than all others."""

from __future__ import annotations

from ...model.log_facts import Finished, GlooTimeout, PrintedStep, TimedOut
from ..findings.log_counts import LeftBehind
from .scene import Scene, ranks_named

_CLEARLY = 2  # of its own distances between steps: more than ranks that run side by side are apart
_FEW = 3  # ranks


def left_behind_in_prints(scene: Scene) -> LeftBehind | None:
    """The ranks whose last step all others have left behind; None where that may be the order of lines."""
    last = {f.rank: f for f in scene.of(PrintedStep)}
    least = min((f.step for f in last.values()), default=-1)
    behind = [f for f in last.values() if f.step == least]
    others = [f for f in last.values() if f.step > least]
    if not others or len(behind) > min(_FEW, len(others)):
        return None
    told = ranks_named([*scene.of(TimedOut), *scene.of(GlooTimeout), *scene.of(Finished)])
    if set(told) & set(ranks_named(behind)):
        return None  # it waited itself, or ended
    if not all(_left(one, other) for one in behind for other in others):
        return None
    latest = max(behind, key=lambda f: f.line)
    return LeftBehind(
        ranks=tuple(ranks_named(behind)),
        others=tuple(ranks_named(others)),
        step=min(f.step for f in others),
        says=latest.says,
        at=f"{scene.logs.files[latest.file].name}:{latest.line}",
    )


def _left(one: PrintedStep, other: PrintedStep) -> bool:
    """Whether the other's lines go on well after the last of this one."""
    if one.file == other.file:
        later = other.line > one.line
    else:
        later = other.at > one.at or min(one.at, other.at) <= 0
    usual = max(1, one.back)
    if other.step >= one.step + _CLEARLY * usual:
        return later
    # It printed less of its last step than the other, and than it printed itself of the one before.
    next_one = one.file == other.file and other.step == one.step + usual
    cut = other.before > one.lines and (not one.before or one.before > one.lines)
    return later and next_one and cut
