"""Waits that reached their limit in libraries that name no operation, or for a key of the store."""

from __future__ import annotations

from collections.abc import Sequence

from ...model.log_facts import (
    AnyFact,
    GlooTimeout,
    KnownError,
    PostedReceive,
    PythonError,
    RankStates,
    StoreWait,
)
from ...stacks.place_search import HANDLE, find_place
from ...text.late import late
from ..findings import Op
from ..findings.log_remaining import LogRemaining, Undecided
from .counter_leads import awaited
from .scene import HCCL_WAIT, Scene, ranks_named

_TRANSFER = late(r"\b(i(?:send|recv))\([^#]{0,200}\)\.wait\(")  # on the line that waits
_SHOWN = 3  # receives
_QUEUE = "shm_queue"  # a rule
_LIBRARIES = {HCCL_WAIT: "HCCL", "ccom_wait": "the set-up of Neuron's collectives"}  # by rule


def of_libraries(scene: Scene) -> LogRemaining | None:
    """Waits in libraries that name no operation, or for a key of the store."""
    in_gloo = scene.of(GlooTimeout)
    if in_gloo and (sending := _all_send(scene)) is not None:
        return sending
    if in_gloo:
        seconds = max(f.limit_ms for f in in_gloo) / 1000
        ranks = tuple(ranks_named(in_gloo))
        named = awaited(scene)
        return LogRemaining(
            Undecided.WAITED_TO_LIMIT,
            ranks,
            seconds=seconds,
            source=scene.source,
            waited=_waited(scene, ranks),
            quiet=_without_error(scene),
            awaited=named if named not in ranks else -1,
        )
    errors: list[AnyFact] = [*scene.of(PythonError), *scene.of(KnownError)]
    for rule, library in _LIBRARIES.items():
        waiting = [f for f in errors if getattr(f, "rule", "") == rule]
        if waiting:
            ranks = tuple(ranks_named(waiting))
            remote, group = _awaited(waiting)
            return LogRemaining(
                Undecided.WAITED_TO_LIMIT, ranks, library=library, awaited=remote, group=group
            )
    keys = [f for f in scene.of(StoreWait) if f.key and f.awaited < 0]
    if keys:
        unset = Op(_in_all(keys) or keys[0].key)
        return LogRemaining(Undecided.UNSET_KEY, tuple(ranks_named(keys)), unset)
    return _posted(scene)


def _posted(scene: Scene) -> LogRemaining | None:
    """Receives in MPI's own queues that nothing has come for."""
    receives = [f for f in scene.of(PostedReceive) if f.rank >= 0]
    if not receives:
        return None
    peers = sorted({f.peer for f in receives if f.peer >= 0} - set(ranks_named(receives)))
    return LogRemaining(
        Undecided.POSTED,
        tuple(ranks_named(receives)),
        sides=tuple(f"rank {f.rank} from {_from(f)}" for f in receives[:_SHOWN]),
        quiet=tuple(peers),
    )


def in_states(scene: Scene) -> LogRemaining | None:
    """The states of the ranks' processes, where nothing else is known of them."""
    tables = scene.of(RankStates)
    if not tables:
        return None
    last = tables[-1]
    return LogRemaining(Undecided.STATES, tuple(last.running), quiet=tuple(last.others))


def _from(receive: PostedReceive) -> str:
    peer = f"rank {receive.peer}" if receive.peer >= 0 else "any rank"
    return f"{peer} with tag {receive.tag}"


def at_a_queue(scene: Scene) -> LogRemaining | None:
    """An engine or its worker that says again and again that the other side does not come."""
    waits = [f for f in scene.of(KnownError) if f.rule == _QUEUE]
    if not waits:
        return None
    processes = {f.pid for f in waits}
    return LogRemaining(
        Undecided.SHARED_QUEUE,
        tuple(ranks_named(waits)),
        seconds=max(f.times * float(f.values.get("seconds", 0)) for f in waits),
        process=processes.pop() if len(processes) == 1 else 0,
    )


def _awaited(waits: Sequence[AnyFact]) -> tuple[int, str]:
    """The one rank that these waited for, and the group that it has this number in; (-1, "") of none."""
    values = [f.values for f in waits if isinstance(f, KnownError | PythonError)]
    told = {(int(v["remote"]), v["group"]) for v in values if v.get("remote") and v.get("group")}
    return told.pop() if len(told) == 1 else (-1, "")


def _without_error(scene: Scene) -> tuple[int, ...]:
    """The few of all ranks that printed no error, neither of a wait nor of a lost connection: a lead,
    since they may only have begun to wait later.
    """
    spoke = set(
        ranks_named([*scene.of(PythonError), *scene.of(KnownError), *scene.of(GlooTimeout)])
    )
    rest = [rank for rank in scene.everyone if rank not in spoke]
    return tuple(rest) if scene.whole and 2 * len(rest) < len(scene.everyone) else ()


def _in_all(waits: Sequence[StoreWait]) -> str:
    """The keys that all of these waits name: torch prints the whole list that a rank waited for, also
    those that were set.
    """
    lists = [wait.key.split(", ") for wait in waits]
    return ", ".join(key for key in lists[0] if all(key in other for other in lists[1:]))


def _waited(scene: Scene, ranks: Sequence[int]) -> tuple[tuple[tuple[int, ...], Op], ...]:
    """Which of these ranks waited in which operation, the most first; () where that is one, or is not
    known of all.
    """
    found: dict[object, list[PythonError]] = {}
    for error in scene.of(PythonError):
        if error.rank in ranks and error.rule == "gloo_timeout" and error.frames:
            place = find_place(error.frames, blocked=True)
            found.setdefault((place.op, place.at), []).append(error)
    sides = sorted(found.values(), key=lambda errors: -len(errors))
    met = [error.rank for errors in sides for error in errors]
    if len(sides) < 2 or sorted(met) != sorted(ranks):
        return ()
    return tuple((tuple(ranks_named(errors)), _op_of(errors[0])) for errors in sides)


def _op_of(error: PythonError) -> Op:
    place = find_place(error.frames, blocked=True)
    code = place.frame.code if place.frame is not None else ""
    if place.op == HANDLE and (call := _TRANSFER.search(code)) is not None:
        return Op(call[1], frame=place.frame)
    return Op(place.op or "a call", frame=place.frame)


def _all_send(scene: Scene) -> LogRemaining | None:
    """Every rank was met in a send, and none in a receive."""
    errors = {e.rank: e for e in scene.of(PythonError) if e.rank >= 0 and e.frames}
    places = [find_place(e.frames, blocked=True) for e in errors.values()]
    if len(errors) < 2 or set(errors) != set(scene.everyone) or {p.op for p in places} != {"send"}:
        return None
    ranks = tuple(sorted(errors))
    return LogRemaining(Undecided.ALL_SEND, ranks, Op("", frame=errors[ranks[0]].frame))
