"""Waits that end at ranks without any information: which known ranks, or which of these, are named."""

from __future__ import annotations

from ..confidence import Less, lowered
from ..findings import Finding
from .blame import blame
from .deadlock import likely_first
from .evidence import Note, Remark
from .mismatch import disagreement_finding
from .order import divergence_finding
from .same_line import to_other_peers
from .scene import Scene
from .silent_ranks import needed, one_may_wait_for_another, silence_finding, suspects_around
from .waits import Instance
from .waits_end import Ends

_NAMED = 32  # silent ranks; of more, naming all of them shows nothing
_PARTED = 2  # ranks whose calls differ; more are not at fault at once


def behind_silence(scene: Scene, ends: Ends) -> list[Finding]:
    """Waits end at ranks without any information: a known one may block them, else one of them is
    the candidate.
    """
    missed = ends.silent
    around = {id(i): i for instances in missed.values() for i in instances}
    for instance in around.values():
        disagreement = disagreement_finding(scene, instance)
        if disagreement is not None:
            return [disagreement]
    parted = _parted_around(scene, missed, ends.around)
    if parted:
        return parted
    named = needed(missed, ends.idle) or needed(missed, set()) or sorted(missed)
    seen = [r for r in named if not scene.lost(r)]
    if not seen:
        # Their hosts have enqueued so much that the record of where their devices are was
        # overwritten: they may wait themselves, and of thirteen simulated ones two were to blame.
        ends.notes.append(_note_on(Remark.BEYOND_RECORDS, named, missed))
        return []
    named = seen  # the others answered, and may wait themselves
    if not any(missed[rank] for rank in named):
        # Only other silent ranks would wait for them: those are as suspect themselves.
        missed = {**ends.awaited, **missed}
        parted = _parted_around(scene, missed, set())
        if parted:
            return parted
        named = sorted({*named, *ends.awaited})
    if len(named) > _NAMED:
        ends.notes.append(_note_on(Remark.MANY_UNSEEN, named, missed))
        return []
    if one_may_wait_for_another(scene, named):
        ends.notes.append(_note_on(Remark.SEVERAL_UNSEEN, named, missed))
    return [silence_finding(scene, named, missed)]


def _parted_around(
    scene: Scene, missed: dict[int, list[Instance]], ring: set[int]
) -> list[Finding]:
    """One or two known ranks around silent ones, or in rings that these close, whose calls differ."""
    suspects = likely_first(scene, suspects_around(scene, missed))
    found = blame(scene, suspects)
    if not found or len(found) > _PARTED:
        found = blame(scene, likely_first(scene, sorted(ring))) or to_other_peers(scene, suspects)
    if not found or len(found) > _PARTED:
        return []
    cause = divergence_finding(scene, found, [])
    cause.confidence = lowered(cause.confidence, Less.AROUND_SILENCE)
    return [cause]


def _note_on(remark: Remark, ranks: list[int], missed: dict[int, list[Instance]]) -> Note:
    """Who waits for these ranks, which cannot be blamed for it."""
    waiting = {r for rank in ranks for i in missed[rank] for r in i.waiters}
    return Note(remark, tuple(sorted(waiting)), blamed=tuple(ranks))
