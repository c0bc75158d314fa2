"""What DistributedDataParallel does in C++: all_reduces of gradients, which stacks show and no black box records."""

from __future__ import annotations

from ..model import Cause
from ..operations import RankOps
from ..places import GRADIENTS
from ..ranges import format_ranks
from .case import Case, short

_ADVICE = (
    "Compare how many batches each rank had, and branches around its backward: DistributedDataParallel needs as many on every rank "
    "(drop_last=True, or its join()). Stacks and black boxes do not count its all_reduces; Flight Recorder dumps do (TORCH_FR_BUFFER_SIZE=2000)."
)


def advise(case: Case, causes: list[Cause]) -> list[Cause]:
    """The same causes; where one side of a wrong order reduces gradients, with the usual reason for that."""
    if any(v.place.op == GRADIENTS for v in case.waiting):
        for cause in causes:
            if cause.kind == "order":
                cause.advice = _ADVICE
    return causes


def without_unrecorded(case: Case, causes: list[Cause]) -> tuple[list[Cause], list[str]]:
    """(causes, notes) of the operations, without those that blame ranks which wait in what their records cannot show."""
    unseen = {v.rank: v for v in case.waiting if v.capture.ops is not None and _shows_nothing(v.capture.ops)}
    kept = [c for c in causes if c.kind not in ("not_entered", "order") or not set(c.ranks) <= unseen.keys()]
    if len(kept) == len(causes):
        return causes, []
    place = next(iter(unseen.values())).place
    at = f" at {short(place.frame)}" if place.frame is not None else ""
    stand = "stands" if len(unseen) == 1 else "stand"
    return kept, [
        f"rank{'' if len(unseen) == 1 else 's'} {format_ranks(sorted(unseen))} {stand} in {place.op}{at}, which black boxes do not record: "
        "stacks are believed"
    ]


def _shows_nothing(ops: RankOps) -> bool:
    return ops.source == "blackbox" and all(o.state == "done" for o in ops.operations)
