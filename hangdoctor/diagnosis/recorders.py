"""Which records of operations a diagnosis reads: those of the black boxes, of torch's own recorder, or
of NCCL.
"""

from __future__ import annotations

from msgspec import structs

from ..model.capture import RankCapture
from ..model.operations import P2P, STORE, RankOps
from .case import Case
from .transfer_numbers import agree
from .view import RankView


def by_recorder(case: Case) -> bool:
    """Whether torch's own recorders, or NCCL's events, show a wait that no black box does, since C++
    began it.

    All ranks count by the same of the three: they do not count alike.
    """
    free = [v.capture for v in case.alive if v.capture.ops is not None and not v.stopped]
    if any(capture.recorded is None or _in_unrecorded_transfer(capture) for capture in free):
        return False
    sources = {c.recorded.source for c in free if c.recorded is not None}
    if len(sources) > 1 or ("nccl" in sources and any(map(_box_shows_a_wait, free))):
        return False
    return any(_only_recorded(capture) for capture in free)


def box_shows_nothing(ops: RankOps) -> bool:
    """Whether these are records of a black box, without an operation that has not ended."""
    return ops.source == "blackbox" and not ops.unfinished()


def _box_shows_a_wait(capture: RankCapture) -> bool:
    """Whether it has one that NCCL may have as well: it knows nothing of the store."""
    open_calls = capture.ops.unfinished() if capture.ops is not None else []
    return any(op.op not in STORE for op in open_calls)


def _in_unrecorded_transfer(capture: RankCapture) -> bool:
    """Whether it is in a send or receive, which gloo's recorder leaves out."""
    box, recorded = capture.ops, capture.recorded
    if box is None or recorded is None or recorded.runs_ahead:
        return False
    return any(op.op in P2P for op in box.unfinished())


def _only_recorded(capture: RankCapture) -> bool:
    box, recorded = capture.ops, capture.recorded
    if box is None or recorded is None or box.unfinished():
        return False
    return bool(recorded.unfinished())


def _of_the_same_source(capture: RankCapture) -> RankOps | None:
    last, first = capture.recorded, capture.recorded_before
    alike = last is not None and first is not None and first.source == last.source
    return first if alike else None


def records_of(case: Case) -> tuple[dict[int, RankOps], dict[int, RankOps]]:
    """The records of the last capture and those of the one before, by rank."""
    now: dict[int, RankOps] = {}
    before: dict[int, RankOps] = {}
    recorders = by_recorder(case)
    for view in case.views:
        capture = view.capture
        last, first = capture.ops, capture.ops_before
        if recorders and capture.ops is not None:
            last, first = capture.recorded, _of_the_same_source(capture)
            last = _at_its_line(view, last) if last is not None else None
        if last is not None:
            now[view.rank] = last
        if first is not None:
            before[view.rank] = first
    return agree(now, before) if len(case.capture.nodes) > 1 else (now, before)


def _at_its_line(view: RankView, ops: RankOps) -> RankOps:
    """With the line of the one call that the rank waits in: its recorder was asked without its stacks."""
    pending, frame = ops.unfinished(), view.place.frame
    if len(pending) != 1 or pending[0].site or frame is None or not view.waits:
        return ops
    told = [
        structs.replace(op, site=str(frame)) if op is pending[0] else op for op in ops.operations
    ]
    return structs.replace(ops, operations=told)
