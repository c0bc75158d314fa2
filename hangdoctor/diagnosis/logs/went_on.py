"""Few ranks that went on while all others had come to the end of their program: one call too many."""

from __future__ import annotations

from ...model.log_facts import Finished
from ...model.operations import Operation
from ..case import Case
from ..confidence import Ground, sure
from ..findings import Clue, EndedCleanly, Finding, Op
from ..findings.log_stories import WentOn
from .first import First
from .scene import Scene, ranks_named


def went_on(case: Case, scene: Scene) -> First | None:
    """The ranks that lost the others in an operation, when all others ended with exit code 0."""
    victims = scene.victims()
    late = ranks_named(v for v in victims if v.rule == "peer_closed")
    ended = ranks_named(scene.of(Finished))
    known = {*late, *ended} == set(scene.everyone) and scene.whole
    if not late or 2 * len(late) >= len(scene.everyone) or set(late) & set(ended) or not known:
        return None
    last = _lost_in(case, late[0])
    if last is None:
        return None
    finding = Finding(
        kind="end_stall",
        ranks=late,
        story=WentOn(Op(last.op, last.seq, site=last.site), tuple(ended)),
        confidence=sure(Ground.LOG_WENT_ON),
        nodes=scene.nodes(late),
        clues=[Clue("proc", tuple(ended), EndedCleanly())],
    )
    finding.where.op, finding.where.seq = last.op, last.seq
    return First(finding, [v for v in victims if v.rank in late], True)


def _lost_in(case: Case, rank: int) -> Operation | None:
    """The operation that it left by an exception."""
    ops = next((v.capture.ops for v in case.views if v.rank == rank), None)
    last = ops.operations[-1] if ops is not None and ops.operations else None
    return last if last is not None and last.failed else None
