"""The one worker that can still owe an answer to a rank that receives from whoever sends first.

Of a farm of tasks: the rank that hands them out waits for a result of any worker. All workers but
one have left their loop; that one waits in it for its next task, so no result is on its way. It
took one and sent none (a swallowed exception), or the first waits for one result too many.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.capture import Frame
from ..text.late import late
from . import findings as f
from .case import Case, finding_on, in_op, op_of, ranks_of, where_held
from .confidence import Ground, sure
from .findings import Finding
from .position import group_by_operation
from .view import RankView

# `comm.recv(source=MPI.ANY_SOURCE)`, or no source at all: mpi4py's and torch's default is any
_FROM_ANY = late(
    r"\bANY_SOURCE\b"
    r"|\b[Ii]?[Rr]ecv\(\s*(?:[A-Za-z_][\w.]*)?(?:\s*,?\s*(?:tag|group)\s*=\s*[\w.]+)*\s*\)"
)
_OTHERS = 2  # workers that are through, at least


def find(case: Case, waiting: Sequence[RankView]) -> Finding | None:
    """Name it, where all ranks were seen and wait."""
    asking = {view.rank: view for view in waiting if _receives_from_any(view)}
    if not asking or len(waiting) != case.world_size:
        return None
    owing = [v for v in waiting if v.place.kind == "p2p" and v.place.peer in asking]
    through = [v for v in waiting if v.rank not in asking and v not in owing]
    if len(owing) != 1 or len(through) < _OTHERS or not _receives(owing[0]):
        return None
    worker, asked = owing[0], asking[owing[0].place.peer]
    loop = worker.place.frame
    if loop is None or any(view.place.kind == "p2p" or _is_in(view, loop) for view in through):
        return None
    story = f.OwesAnswer(op_of([worker]), asked.rank, op_of([asked]), ranks_of(through))
    finding = finding_on(
        case, "p2p_unmatched", [worker], story, confidence=sure(Ground.LAST_ANSWER)
    )
    finding.where = where_held(case, [asked], worker)
    finding.clues = [in_op(side) for side in ([asked], [worker], *group_by_operation(through))]
    return finding


def _receives_from_any(view: RankView) -> bool:
    frame = view.place.frame
    if not _receives(view) or view.place.peer >= 0 or frame is None:
        return False
    return _FROM_ANY.search(frame.code) is not None


def _receives(view: RankView) -> bool:
    return view.place.kind == "p2p" and "recv" in view.place.op.lower()


def _is_in(view: RankView, frame: Frame) -> bool:
    """Whether it is in the function of a frame."""
    return any((one.name, one.file) == (frame.name, frame.file) for one in view.path)
