"""Of a job that is over: ranks that ended with exit code 0 long before the others, which got no further from then on.

Such a rank takes its black box away, and where `hangdoctor run` was killed with the others, no end of theirs was
noted: the line of its own end is all that there is of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from ..model.capture import JobCapture, RankCapture
from ..model.log_facts import Ended
from ..model.process_end import ProcessEnd
from .blackbox import Contents
from .box_place import signs_until

_SOON_S = 5.0  # between its end and the others' last progress
_ROUNDS = 3.0  # the same, in pauses that they had before
_LATEST_S = 60.0  # the same, at most
_KILLS = (-9, -15)


def add_left(capture: JobCapture, boxes: Sequence[Contents], ends: Iterable[ProcessEnd]) -> None:
    """Puts these ranks into the capture, as ended, if the place of every other rank is known."""
    left = _left(capture, boxes, ends)
    others = capture.ranks()
    if not left or len(left) >= len(others) or not all(rank.samples for rank in others):
        return
    if not all(_goes_on_until(boxes, end.at) and _lives_on(capture, end) for end in left.values()):
        return
    last = min(contents.box.heartbeat_s for contents in boxes)
    capture.nodes[0].ranks += [_ended(end, capture.world_size, last) for end in left.values()]
    capture.nodes[0].ranks.sort(key=lambda rank: rank.rank)


def _left(
    capture: JobCapture, boxes: Sequence[Contents], ends: Iterable[ProcessEnd]
) -> dict[int, ProcessEnd]:
    """By rank; {} where they and the boxes are not all ranks, or a box tells of an end of its own."""
    if not boxes or any(c.box.ended_s or c.box.end_text for c in boxes):
        return {}
    with_box = {c.ops.rank for c in boxes}
    began = max(c.box.created_s for c in boxes)
    left = {
        end.rank: end
        for end in ends
        if end.boxed and end.code == 0 and end.at > began and end.rank not in with_box
    }
    whole = with_box | left.keys() == set(range(len(boxes) + len(left)))
    return left if whole and len(boxes) + len(left) == capture.world_size else {}


def _goes_on_until(boxes: Sequence[Contents], at: float) -> bool:
    """Whether the others got on until then, and for a few rounds at most after it."""
    signs = [signs_until(contents.ops, 0.0) for contents in boxes]
    last = max(max([contents.ops.got_on_s, *of]) for contents, of in zip(boxes, signs, strict=True))
    pauses = [later - earlier for of in signs for earlier, later in pairwise(of) if later < at]
    longest = min(_LATEST_S, max(_SOON_S, _ROUNDS * max(pauses, default=0.0)))
    return at - _SOON_S < last < at + longest


def _lives_on(capture: JobCapture, end: ProcessEnd) -> bool:
    """Whether nothing but a kill of the others, much later, is known of how they ended."""
    facts = capture.logs.facts if capture.logs is not None else []
    kills = [f for f in facts if isinstance(f, Ended) and f.code in _KILLS]
    return len(kills) == len(facts) and all(f.at > end.at + _SOON_S for f in kills)


def _ended(end: ProcessEnd, world_size: int, last_s: float) -> RankCapture:
    return RankCapture(
        pid=end.pid,
        rank=end.rank,
        node=end.node,
        world_size=world_size,
        gone=True,
        exit_code=0,
        left_s=last_s - end.at,
    )
