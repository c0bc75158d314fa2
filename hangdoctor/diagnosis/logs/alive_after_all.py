"""Ranks that a coordinator had not heard from, whose own logs go on after that: they were alive, and its
word on the others is worth less, too.
"""

from __future__ import annotations

from msgspec import structs

from ...model.log_facts import AnyFact, KnownError, Progress
from ..confidence import Ground, sure
from ..findings import Clue
from ..findings.log_stories import FailedFirst
from .candidate import First
from .scene import Scene

_LOST = "jax_lost_task"  # a rule
_HEARD = "jax_peer"  # another one: who prints it was there to hear that the job is ended


def without_the_living(scene: Scene, found: First) -> First:
    """The same, of those alone that are not seen to live, where there are some."""
    story = found.finding.story
    if not isinstance(story, FailedFirst) or getattr(found.facts[0], "rule", "") != _LOST:
        return found
    lost = {f.rank: f for f in found.facts if f.rank >= 0}
    signs = [sign for rank in sorted(lost) if (sign := _sign(scene, lost[rank])) is not None]
    if not signs:
        return found
    living = tuple(sign.rank for sign in signs)
    found.finding.ranks = [r for r in found.finding.ranks if r not in living] or [*living]
    found.finding.nodes = scene.nodes(found.finding.ranks)
    first = signs[0]
    quote = scene.quote(first)
    found.finding.story = structs.replace(story, living=living, lives_by=quote, nodes=())
    found.finding.confidence = sure(Ground.LOG_MISHEARD)
    found.finding.clues += [Clue("log", (first.rank,), quote)]
    return found


def _sign(scene: Scene, lost: AnyFact) -> AnyFact | None:
    """A line of the rank's own, in another file than the coordinator's, that it cannot have printed dead."""
    own = [f for f in scene.facts if f.rank == lost.rank and f.file != lost.file]
    heard = [f for f in own if isinstance(f, KnownError) and f.rule == _HEARD]
    steps = [f for f in own if isinstance(f, Progress) and 0 < lost.at < f.at and not f.inherited]
    return (heard or steps or [None])[0]
