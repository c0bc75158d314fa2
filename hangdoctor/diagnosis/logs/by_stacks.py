"""Ranks that waited in gloo, or for the store, until its limit, by the stacks of the errors that ended
their waits: who of them made another call, as a dump of the living job would say it.

A rank that lost its connection as another one's wait ended is where it waited, too; it may have come
there after the first one's limit, so that only ranks in different calls show anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from ...model.capture import JobCapture, NodeCapture, ProcessSample, RankCapture, ThreadSample
from ...model.frame import Frame
from ...model.log_facts import PythonError
from ...stacks.place_search import HANDLE, STORE_CALL
from ...stacks.user_code import C10D, is_users
from .. import waiting
from ..case import Case, open_case
from ..deadends import names_group
from ..findings import Apart, Finding, InOther
from .candidate import First
from .end_of_chain import end_of_chain
from .partners import with_partner
from .scene import LIMITS, WAITS, Scene

_APART = ("order", "p2p_unmatched", "mismatch")
_AT_MOST = 0.6  # lines alone, of a job that is over
_SECONDS = 5.0  # between the samples that such a rank would have given


def by_stacks(scene: Scene) -> First | None:
    """Who was in another call; None where not all ranks were met in a wait, or nothing shows it."""
    errors = _waits(scene)
    if len(errors) < 2 or set(errors) != set(scene.everyone):
        return None
    frames = {rank: with_group(_with_call(error)) for rank, error in errors.items()}
    finding = _for_one_another(scene, errors, frames)
    if finding is None and scene.whole:
        finding = _elsewhere(scene, frames)
    if finding is None:
        return None
    finding.confidence = min(finding.confidence, _AT_MOST)
    finding.waiters = None  # since when, no line says
    return First(finding, [errors[rank] for rank in sorted(errors)], True)


def _elsewhere(scene: Scene, frames: Mapping[int, list[Frame]]) -> Finding | None:
    """Who was in another call, by the lines alone."""
    case = _as_case(scene, frames)
    if len(case.waiting) < len(frames):
        return None  # one whose call no rule knows
    found = [one for one in waiting.find(case, set()) if one.kind in _APART]
    if len(found) != 1 or _may_wait_for_one(case, found[0].ranks):
        return None
    return found[0]


def _for_one_another(
    scene: Scene, errors: Mapping[int, PythonError], frames: Mapping[int, list[Frame]]
) -> Finding | None:
    """A ring of ranks in sends and receives whose lines show with which rank, as two that send to
    each other. All of them had waited until the limit; of ranks that all send, in one line, another
    reason says more. Ranks that the logs do not have take no part in a ring.
    """
    world = len(frames)
    partnered = {rank: with_partner(own, rank, world) for rank, own in frames.items()}
    case = _as_case(scene, partnered)
    if partnered == frames or len(case.waiting) < world:
        return None
    end = end_of_chain(case, partnered) if scene.whole else None
    if end is not None and all(e.rule in LIMITS for r, e in errors.items() if r not in end.ranks):
        return end
    rings = [one for one in waiting.find(case, set()) if _is_ring(one)]
    if len(rings) != 1 or any(errors[rank].rule not in LIMITS for rank in rings[0].ranks):
        return None
    alike = {view.place.at for view in case.waiting}
    return rings[0] if len(rings[0].ranks) < world or len(alike) > 1 else None


def _is_ring(finding: Finding) -> bool:
    """Ranks in sends and receives that wait for one another, or the one of them that is apart."""
    story = finding.story
    ring = isinstance(story, InOther) and story.how in (Apart.RING, Apart.BOTH_SIDES)
    return ring and finding.kind == "p2p_unmatched"


def _as_case(scene: Scene, frames: Mapping[int, list[Frame]]) -> Case:
    """The ranks as two samples would have shown them, blocked at the lines of their errors."""
    nodes: dict[str, NodeCapture] = {}
    for rank, own in sorted(frames.items()):
        node = scene.homes.get(rank, "")
        nodes.setdefault(node, NodeCapture(node)).ranks.append(_as_captured(rank, node, own))
    return open_case(JobCapture("", list(nodes.values()), world_size=len(frames)))


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
    called = [n for n, frame in enumerate(frames) if frame.file.endswith(C10D)]
    outermost = max(called, default=-1)
    return [
        structs.replace(frame, group="sub") if n == outermost else frame
        for n, frame in enumerate(frames)
    ]


def _as_captured(rank: int, node: str, frames: list[Frame]) -> RankCapture:
    thread = ThreadSample(tid=rank + 1, name="MainThread", state="S", switches=1)
    thread.frames = frames
    samples = [ProcessSample(at, "S", threads=[thread]) for at in (0.0, _SECONDS)]
    return RankCapture(pid=rank + 1, rank=rank, node=node, samples=samples)
