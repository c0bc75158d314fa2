"""One rank in a call that it made from inside the one that all others wait in."""

from __future__ import annotations

from hangdoctor.diagnosis.called_within import Within, few_within
from hangdoctor.diagnosis.case import open_case
from hangdoctor.diagnosis.findings import Op
from hangdoctor.diagnosis.health import Reason, Remaining
from hangdoctor.diagnosis.position import group_by_operation
from hangdoctor.diagnosis.wording.remaining import unknown
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture
from tests.support.captures import C10D, MAIN, stack, still

TORCH = "/v/site-packages/torch/"
STEP = ("step", "/app/train.py", 40)
ENGINE = ("_engine_run_backward", TORCH + "autograd/graph.py", 979)
BACKWARD = stack(ENGINE, STEP, MAIN)


def in_barrier(*outer: tuple[str, str, int]) -> list[Frame]:
    frames = stack(("barrier", C10D, 5356), ("save", "/app/train.py", 32), *outer, MAIN)
    frames[1].code = "dist.barrier(group=self.save_group)"
    return frames


def led_by(frames: list[Frame]) -> Within | None:
    ranks = [still(rank, BACKWARD) for rank in range(3)] + [still(3, frames)]
    case = open_case(JobCapture("j", [NodeCapture("n1", ranks=ranks)], [], 4))
    return few_within(group_by_operation(case.waiting))


def test_what_led_a_rank_to_another_call_from_inside_that_of_the_others() -> None:
    found = led_by(in_barrier(("on_notice", "/app/train.py", 19), ENGINE, STEP))
    assert found is not None
    assert (found[0], str(found[1])) == ((3,), "on_notice (/app/train.py:19)")
    of = Remaining(Reason.TWO_SIDES, sides=(((0, 1, 2), Op("a")), ((3,), Op("b"))), within=found)
    says = "Rank 3 comes there from inside the call of the others, by on_notice (train.py:19)"
    assert says in unknown(of)


def test_a_call_beside_that_of_the_others_is_none() -> None:
    assert (
        led_by(in_barrier(("on_notice", "/app/train.py", 19), ("step", "/app/train.py", 44)))
        is None
    )
