"""Ranks that waited in gloo, or for the store, until its limit, by the stacks of the errors that ended
their waits: who of them made another call, as a dump of the living job would say it.

A rank that lost its connection as another one's wait ended is where it waited, too; it may have come
there after the first one's limit, so that only ranks in different calls show anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ...model.capture import JobCapture, NodeCapture, ProcessSample, RankCapture, ThreadSample
from ...model.frame import Frame
from ...model.log_facts import PythonError
from ...stacks.place_search import HANDLE, STORE_CALL
from ...stacks.user_code import is_users
from .. import waiting
from ..case import Case, open_case
from ..deadends import names_group
from .candidate import First
from .scene import LIMITS, WAITS, Scene

_TORCH = "torch/distributed/distributed_c10d.py"
_APART = ("order", "p2p_unmatched", "mismatch")
_AT_MOST = 0.6  # lines alone, of a job that is over
_SECONDS = 5.0  # between the samples that such a rank would have given


def by_stacks(scene: Scene) -> First | None:
    """Who was in another call; None where not all ranks were met in a wait, or nothing shows it."""
    errors = _waits(scene)
    if len(errors) < 2 or set(errors) != set(scene.everyone) or not scene.whole:
        return None
    nodes: dict[str, NodeCapture] = {}
    for rank, error in sorted(errors.items()):
        node = scene.homes.get(rank, "")
        nodes.setdefault(node, NodeCapture(node)).ranks.append(_as_captured(rank, node, error))
    case = open_case(JobCapture("", list(nodes.values()), world_size=len(errors)))
    if len(case.waiting) < len(errors):
        return None  # one whose call no rule knows
    found = [one for one in waiting.find(case, set()) if one.kind in _APART]
    if len(found) != 1:
        return None
    [finding] = found
    if _may_wait_for_one(case, finding.ranks):
        return None
    finding.confidence = min(finding.confidence, _AT_MOST)
    finding.waiters = None  # since when, no line says
    return First(finding, [errors[rank] for rank in sorted(errors)], True)


def _may_wait_for_one(case: Case, ranks: Sequence[int]) -> bool:
    """Whether these are in a call of a group that their line names, maybe of a few ranks, while others
    send and receive: one of those may have left it out. So may one where these alone wait for a
    handle, which may be of a send.
    """
    few = [v for v in case.waiting if v.rank in ranks]
    others = [v for v in case.waiting if v.rank not in ranks]
    in_named = all(v.place.group == "sub" for v in few)
    if all(v.place.op == HANDLE for v in few) and all(v.place.op != HANDLE for v in others):
        return True
    return in_named and any(v.place.kind == "p2p" for v in others)


def _waits(scene: Scene) -> dict[int, PythonError]:
    """The error that ended each rank's wait; {} where some rank had another one."""
    found: dict[int, PythonError] = {}
    for error in scene.of(PythonError):
        if error.rank < 0 or error.survived:
            continue
        if error.rank not in found and error.rule in WAITS and error.frames:
            found[error.rank] = error
        elif error.rank not in found:
            return {}
    limits = [error for error in found.values() if error.rule in LIMITS]
    return found if limits else {}


def _with_call(error: PythonError) -> list[Frame]:
    """The frames; a wait for a key of the store has none of its own, and a black box no source."""
    inner, *outer = error.frames
    if error.rule != "store_timeout" or inner.code or not is_users(inner):
        return error.frames
    return [structs.replace(inner, code=STORE_CALL), *outer]


def with_group(frames: list[Frame]) -> list[Frame]:
    """The frames; torch's call has a group of its own where the line of the user's that made it names
    one: of a few ranks, maybe.
    """
    own = next((frame for frame in frames if is_users(frame)), None)
    if not names_group(own):
        return frames
    called = [n for n, frame in enumerate(frames) if frame.file.endswith(_TORCH)]
    outermost = max(called, default=-1)
    return [
        structs.replace(frame, group="sub") if n == outermost else frame
        for n, frame in enumerate(frames)
    ]


def _as_captured(rank: int, node: str, error: PythonError) -> RankCapture:
    """The rank as two samples would have shown it, blocked at the line of its error."""
    thread = ThreadSample(tid=rank + 1, name="MainThread", state="S", switches=1)
    thread.frames = with_group(_with_call(error))
    samples = [ProcessSample(at, "S", threads=[thread]) for at in (0.0, _SECONDS)]
    return RankCapture(pid=rank + 1, rank=rank, node=node, samples=samples)
