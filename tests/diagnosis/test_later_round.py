"""A rank in another call than all others, in the same round of the loop around both, or in the next
one.
"""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.operations import Group, Operation, RankOps, group_uid
from tests.support.captures import C10D, causes, still

WORLD = Group(group_uid([0, 1, 2]), [0, 1, 2])
EVAL = Group(group_uid([0, 1, 2], 1), [0, 1, 2], name="eval")
STEP, LOOK = "step (/app/fit.py:50)", "evaluate (/app/fit.py:46)"


def made(seq: int, op: str, site: str, ended: bool = True) -> Operation:
    group = WORLD if op == "all_reduce" else EVAL
    times = {"entered_s": float(seq), "left_s": seq + 0.5 if ended else 0.0}
    return Operation(group.uid, seq, op, "done" if ended else "entered", site=site, **times)  # type: ignore[arg-type]


def rank_in(rank: int, op: str, line: int, site: str, epoch: int) -> RankCapture:
    main = Frame("main", "/app/fit.py", line, values={"epoch": epoch}, counts="epoch")
    one = still(rank, [Frame(op, C10D, 9), main])
    one.world_size = 3
    steps = [made(1, "all_reduce", STEP), made(2, "all_reduce", STEP)]
    last = made(3 if op == "all_reduce" else 1, op, site, ended=False)
    one.ops = RankOps(rank, 3, "blackbox", groups=[WORLD, EVAL], operations=[*steps, last])
    return one


def job(epoch: int) -> Diagnosis:
    """Ranks 0 and 1 gather what an evaluation found; rank 2 reduces gradients in this epoch."""
    others = [rank_in(rank, "all_gather", 70, LOOK, 2) for rank in (0, 1)]
    ranks = [*others, rank_in(2, "all_reduce", 66, STEP, epoch)]
    return diagnose(JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=3))


@pytest.mark.parametrize(("epoch", "skipped"), [(3, True), (2, False)])
def test_in_a_later_round_it_left_the_call_out_and_made_none_too_many(
    epoch: int, skipped: bool
) -> None:
    found = job(epoch)
    assert causes(found) == [("order", [2])], found.summary
    assert ("skipped all_gather #1" in found.summary) is skipped, found.summary
