"""A rendezvous store that ranks still asked when its process had gone: rank 0's, in a job without a
launcher that holds it.
"""

from __future__ import annotations

from ...model.log_facts import (
    AnyFact,
    Ended,
    GlooTimeout,
    LastWords,
    PeerClosed,
    PythonError,
    Signalled,
    TimedOut,
)
from ..confidence import Ground, sure
from ..findings import Clue, Finding
from ..findings.log_remaining import LogRemaining, Undecided
from ..findings.log_stories import Quote, StoreHostGone
from .candidate import First
from .scene import Scene, ranks_named

_HOST = 0  # the rank that holds the store
_OTHERWISE = (Ended, Signalled, TimedOut, GlooTimeout)  # the end has another story


def host_left(scene: Scene) -> First | None:
    """Rank 0, where it has spoken and raised nothing, and all others raised that they lost the store."""
    lost = ranks_named(_raised(scene))
    others = [rank for rank in scene.everyone if rank != _HOST]
    silent = _HOST in scene.logs.heard and _HOST not in ranks_named(scene.of(PythonError))
    known = bool(lost) and lost == others and silent
    if not known or any(isinstance(f, _OTHERWISE) for f in scene.facts):
        return None
    finding = Finding(
        kind="dead",
        ranks=[_HOST],
        story=StoreHostGone(tuple(lost), gone=True, quiet=True),
        confidence=sure(Ground.LOG_STORE_LEFT),
        nodes=scene.nodes([_HOST]),
        clues=[_as_clue(scene, fact) for fact in scene.of(LastWords) if fact.rank == _HOST],
    )
    return First(finding, [*_raised(scene)], True)


def lost_store(scene: Scene, ranks: tuple[int, ...]) -> LogRemaining | None:
    """Where all that was lost is the store."""
    by_warning = scene.of(PeerClosed)
    store = [f for f in by_warning if f.library == "store"]
    losses: list[AnyFact] = [v for v in scene.victims() if v.rule == "peer_closed"]
    own = {id(f) for f in _raised(scene)}
    other = [f for f in losses if id(f) not in own]
    if not store or other or len(store) < len(by_warning):
        return None
    return LogRemaining(Undecided.STORE_GONE, ranks, source=scene.source)


def _raised(scene: Scene) -> list[PythonError]:
    return [v for v in scene.victims() if v.error == "DistNetworkError"]


def _as_clue(scene: Scene, fact: LastWords) -> Clue:
    name = scene.logs.files[fact.file].name
    return Clue("log", (fact.rank,), Quote(name, fact.line, fact.says))
