"""What follows from a failure that the logs do not show: lost connections, and the words of libraries
that gave up since something else had failed.

What a line shows is said, and no more: who prints that it lost a connection has not shown that a
process ended, and an operation that was cancelled has lost no connection.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from ...model.frame import Frame
from ...model.log_facts import (
    AnyFact,
    Ended,
    GlooTimeout,
    Guarded,
    KnownError,
    PeerClosed,
    Progress,
    PythonError,
    TimedOut,
    Unanswered,
)
from ...stacks.user_code import is_parents
from ..findings import Op
from ..findings.log_remaining import LogRemaining, Undecided
from ..findings.log_stories import Someone
from .by_torch import is_local
from .candidate import someone
from .error_findings import filled
from .scene import NCCL_WARNED, Scene, ranks_named
from .store_gone import lost_store

_A_CALL = "mpi_other"  # a rule: the stack below it may tell more
# Rules of errors that say of a lost connection.
_LOST = ("peer_closed", "nccl_remote", "peer_gone", "ucx_peer")
_ASKED = "terminated"  # the rule of those that were asked to end
# Rules of what a job prints at any end of it; the last one alone names what ended.
_AT_ENDS = (_ASKED, "asyncio_cancelled", "worker_of_rank", "ray_killed")
_CHECK = "mismatch_check"
_WAY_OUT = "nccl_way_out"
_VAGUE = (_WAY_OUT, NCCL_WARNED, "tf_aborted")  # rules whose lines come with clearer ones
_PARENT = "the parent of the ranks, in the join of mp.spawn,"
_SHOWN = 3  # places where a signal met ranks


def failed_before(scene: Scene, end: AnyFact) -> bool:
    """Whether something is seen to have failed, or waited in vain, before the job was ended from
    outside.
    """
    earlier = scene.facts[: scene.facts.index(end)]
    return any(_shows_failure(scene, fact) for fact in earlier)


def _shows_failure(scene: Scene, fact: AnyFact) -> bool:
    if isinstance(fact, TimedOut | GlooTimeout | Unanswered | Guarded):
        return True
    if isinstance(fact, Ended):
        return fact.code not in (0, -signal.SIGTERM)
    if isinstance(fact, PeerClosed):
        return not _was_reached_later(scene, fact)
    if isinstance(fact, PythonError | KnownError):
        follows = fact.role == "consequence" and fact.rule not in _AT_ENDS
        return follows and not fact.survived
    return False


def followed(scene: Scene) -> LogRemaining | None:
    """The first words of a library that gave up over something that is not shown; None of none."""
    known = [f for f in scene.facts if isinstance(f, KnownError | PythonError)]
    words = [f for f in known if _shows_failure(scene, f) and f.rule in scene.logs.rules]
    clear = [f for f in words if f.rule not in (*_VAGUE, _A_CALL)]
    worded = [f for f in words if f.rule != _WAY_OUT]  # its lines have no reason
    chosen = clear or worded or words or [f for f in known if f.rule == _AT_ENDS[-1]]
    if not chosen:
        return None
    first = chosen[0]
    alike = [f for f in chosen if f.rule == first.rule]
    who = someone(first, alike) if first.rank < 0 and not ranks_named(alike) else Someone()
    return LogRemaining(
        Undecided.FOLLOWED,
        tuple(ranks_named(alike)),
        source=scene.source,
        last=scene.quote(first),
        meaning=filled(scene.logs.rules[first.rule].meaning, first),
        process=who.pid,
        devices=who.devices,
        node=first.node,
        # Of the vague ones it alone may say of a failure of its own.
        earliest=first.rule == NCCL_WARNED and first is words[0],
        unread=any(_is_earlier(f, first) for f in scene.unread),
    )


def _is_earlier(fact: AnyFact, first: AnyFact) -> bool:
    """Whether another speaker printed it before."""
    same = fact.rank == first.rank >= 0
    return not same and (fact.file, fact.line) < (first.file, first.line)


def lost_lines(scene: Scene) -> list[AnyFact]:
    """Lines that say of a lost connection."""
    known: list[AnyFact] = [f for f in scene.of(KnownError) if f.rule in _LOST and not f.survived]
    closed = [f for f in scene.of(PeerClosed) if not _was_reached_later(scene, f)]
    return [*closed, *known]


def _was_reached_later(scene: Scene, fact: PeerClosed) -> bool:
    """Whether it is a try of gRPC's, which it makes again until the other side is there, and the job
    made progress after it.
    """
    steps = [f for f in scene.of(Progress) if f.file == fact.file and f.moved > fact.line]
    return fact.library == "grpc" and bool(steps)


def of_victims(scene: Scene, victims: Sequence[PythonError]) -> LogRemaining | None:
    """Whether they lost a connection, or by which signals they were ended, or what they say else."""
    lines = lost_lines(scene)
    lost = bool(lines) or any(v.rule in _LOST for v in victims)
    asked = [v for v in victims if v.rule == _ASKED]
    checked = [v for v in victims if v.rule == _CHECK]
    if checked and not lines:
        return LogRemaining(Undecided.OTHER_CALLS, last=scene.quote(checked[0], checked[0].message))
    if not lost and victims and all(v.rule == "store_timeout" for v in victims):
        ranks = tuple(ranks_named(victims))
        at = Op("", frame=victims[0].frame)
        return LogRemaining(Undecided.WAITED_TO_LIMIT, ranks, at, library="the rendezvous store")
    if not lost and len(asked) < len(victims):
        return followed(scene)
    if not lost and asked and all(v.rank < 0 and is_parents(v.frames) for v in asked):
        codes = tuple(sorted({-int(_asked_by(error)) for error in asked}))
        return LogRemaining(Undecided.SIGNALLED, codes=codes, library=_PARENT)
    codes = tuple(sorted(-int(number) for number in {_asked_by(error) for error in asked}))
    ends = [f for f in scene.of(Ended) if f.code]
    ranks = tuple(ranks_named([*victims, *lines, *ends]))
    return lost_store(scene, ranks) or LogRemaining(
        Undecided.VICTIMS_ONLY,
        ranks,
        codes=codes,
        lost=lost,
        peers=_peers(scene) if lost else (),
        source=scene.source,
        met=() if lost else _met(asked),
    )


def _peers(scene: Scene) -> tuple[str, ...]:
    """The hosts, or the ranks, that connections were lost to, where they are few and one can go there."""
    lost = scene.of(PeerClosed)
    told = {f.peer for f in lost if f.peer and not is_local(f.peer)}
    spoke = {*(f.node for f in lost), *(str(f.rank) for f in lost)}
    if len(told) > _SHOWN or told & spoke:
        return ()
    return tuple(sorted(f"rank {peer}" if peer.isdigit() else peer for peer in told))


def _met(asked: Sequence[PythonError]) -> tuple[tuple[tuple[int, ...], Frame], ...]:
    """Where a signal met the ranks, the most at one place first."""
    places: dict[tuple[str, int], list[PythonError]] = {}
    for error in asked:
        if error.rank >= 0 and error.frame is not None:
            places.setdefault((error.frame.file, error.frame.line), []).append(error)
    found = sorted(places.values(), key=lambda errors: -len(errors))[:_SHOWN]
    return tuple((tuple(ranks_named(e)), e[0].frame) for e in found if e[0].frame is not None)


def _asked_by(error: PythonError) -> signal.Signals:
    return signal.SIGINT if error.error == "KeyboardInterrupt" else signal.SIGTERM
