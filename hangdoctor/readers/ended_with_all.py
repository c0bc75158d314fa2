"""An exception that the end of a whole job brings: all processes are killed at one moment, and a rank that has waited
for one of them, as for the answer of a child, lives long enough to find it gone.

It is raised at the line where the rank had been for a long time, in the moment at which all signs of life end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model.log_facts import AnyFact, PythonError
from ..model.pauses import is_long, usual_pause
from ..model.process_end import ProcessEnd
from .blackbox import Contents
from .box_place import LastPlace
from .job_logs.python_frames import own_frame

_SEEN_S = 2.5  # between the last sight of its place, or of another rank, and the error
_AFTER_S = 0.5  # for which a rank may live on
_NOTICED_S = 1.0  # after which `run` has seen an end, at most
_KILLED = -9
_WORKER_DIED = "loader_worker"  # a rule: where all were killed, its workers were, too
_LIMITS = ("timeout", "timed out", "time out", "deadline")  # a wait's own


def mark_cut_short(
    facts: Sequence[AnyFact], boxes: Sequence[Contents], ends: Iterable[ProcessEnd]
) -> None:
    """Notes how long a rank had been at the line of its exception, if the end of all processes caused it."""
    by_rank = {c.ops.rank: c for c in boxes}
    usual = usual_pause((c.ops for c in boxes), 0.0)
    of_ranks = [end for end in ends if end.rank in by_rank]
    for fact in facts:
        if not isinstance(fact, PythonError) or fact.rank not in by_rank or not _may_be(fact):
            continue
        own = by_rank[fact.rank]
        others = [contents for contents in boxes if contents is not own]
        stood = _stood_s(fact, own.place or own.left)
        at_once = all(_ends_with(contents, fact.at) for contents in others)
        by_kill = all(_is_kill(end, fact) for end in of_ranks if end.rank != fact.rank)
        if others and at_once and by_kill and is_long(stood, usual):
            fact.stood_s = stood


def _may_be(error: PythonError) -> bool:
    said = f"{error.error} {error.message}".lower()
    known = error.rule and error.rule != _WORKER_DIED
    return error.role == "cause" and not known and not any(word in said for word in _LIMITS)


def _stood_s(error: PythonError, place: LastPlace | None) -> float:
    """How long it had been at the user's line that raised it; 0 where it had not been seen there."""
    if place is None or place.spins or place.seen_s < error.at - _SEEN_S:
        return 0.0
    at, raised = own_frame(place.frames[::-1]), error.frame
    if at is None or raised is None or (at.file, at.line) != (raised.file, raised.line):
        return 0.0
    return error.at - place.since_s


def _ends_with(contents: Contents, at: float) -> bool:
    """Whether another rank lived until then, and not on."""
    box = contents.box
    if box.end_text:
        return abs(box.ended_s - at) < _NOTICED_S
    return at - _SEEN_S < box.heartbeat_s < at + _AFTER_S


def _is_kill(end: ProcessEnd, error: PythonError) -> bool:
    """Whether it was killed then, and not ended by a launcher that had noticed the error."""
    return end.code == _KILLED and end.at < error.at + _NOTICED_S
