"""Few ranks that went on while all others had come to the end of their program: one call too many."""

from __future__ import annotations

from ...model.log_facts import Finished, PythonError
from ..case import Case
from ..confidence import Ground, sure
from ..findings import Clue, EndedCleanly, Finding, Op
from ..findings.log_stories import WentOn
from .candidate import First
from .scene import Scene, ranks_named


def went_on(case: Case, scene: Scene) -> First | None:
    """The ranks that lost the others in an operation, when all others ended with exit code 0."""
    victims = scene.victims()
    lost = [v for v in victims if v.rule == "peer_closed"]
    late = ranks_named(lost)
    ended = ranks_named(scene.of(Finished))
    known = {*late, *ended} == set(scene.everyone) and scene.whole
    if not late or 2 * len(late) >= len(scene.everyone) or set(late) & set(ended) or not known:
        return None
    op = _lost_in(case, late[0]) or _unrecorded(lost[0])
    if op is None:
        return None
    finding = Finding(
        kind="end_stall",
        ranks=late,
        story=WentOn(op, tuple(ended)),
        confidence=sure(Ground.LOG_WENT_ON),
        nodes=scene.nodes(late),
        clues=[Clue("proc", tuple(ended), EndedCleanly())],
    )
    finding.where.op = op.name
    finding.where.seq = op.seq if op.seq >= 0 else None
    return First(finding, [v for v in victims if v.rank in late], True)


def _lost_in(case: Case, rank: int) -> Op | None:
    """The operation that it left by an exception."""
    ops = next((v.capture.ops for v in case.views if v.rank == rank), None)
    last = ops.operations[-1] if ops is not None and ops.operations else None
    if last is None or not last.failed:
        return None
    return Op(last.op, last.seq, site=last.site)


def _unrecorded(lost: PythonError) -> Op | None:
    """The one that C++ began, by the line where the connection was lost."""
    return Op("a collective", frame=lost.frame) if lost.frame is not None else None
