"""Some ranks are seen to go on, and others at one place: further samples show whether these do."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.diagnosis.third_sample import why_more
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture, RankCapture
from tests.support.captures import captured, sample, stack, still, thread

GRAPH = "/v/site-packages/torch/autograd/graph.py"
MAIN = ("main", "/app/train.py", 52)
BACKWARD = stack(("_engine_run_backward", GRAPH, 979), MAIN)
LOADS = stack(("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 122), MAIN)
POLLS = stack(("wait_for_all", "/app/train.py", 41), MAIN)
LOOKS = stack(
    ("exists", "/usr/lib/python3.11/genericpath.py", 19),
    *[("wait_for_all", "/app/train.py", 40), MAIN],
)
SHARD = stack(("read", "/app/data.py", 7), MAIN)
PARSES = stack(("parse", "/app/data.py", 30), MAIN)


def seen(rank: int, *stacks: list[Frame], call: str = "", cpu_s: float = 0.01) -> RankCapture:
    """A rank by its stack in each sample, which runs now and then between two of them."""
    threads = [
        thread(frames, syscall=call, switches=90 * n, cpu_s=cpu_s * n)
        for n, frames in enumerate(stacks)
    ]
    return captured(rank, [sample(float(n), one) for n, one in enumerate(threads)], world_size=3)


def polling(rank: int, *stacks: list[Frame]) -> RankCapture:
    return seen(rank, *stacks, call="clock_nanosleep")


def capture_of(*ranks: RankCapture) -> JobCapture:
    return JobCapture("j", [NodeCapture("n1", ranks=list(ranks))], [], len(ranks), taken=1.0)


def status_and_more(*ranks: RankCapture) -> tuple[str, bool]:
    capture = capture_of(*ranks)
    said = diagnose(capture)
    return said.status, bool(why_more(capture, said))


GOING = (LOADS, BACKWARD)


def test_one_in_its_backward_while_others_go_on_is_looked_at_again() -> None:
    """Two of three went on; a third in its backward in all samples may be stuck there."""
    others = [seen(0, *GOING), seen(2, *GOING[::-1])]
    assert status_and_more(*others, seen(1, BACKWARD, BACKWARD)) == ("unknown", True)
    longer = [seen(0, *GOING * 3), seen(2, *GOING[::-1] * 3)]
    assert status_and_more(*longer, seen(1, *[BACKWARD] * 6)) == ("unknown", False)
    later = seen(1, BACKWARD, BACKWARD, LOADS, BACKWARD)
    said = diagnose(capture_of(*longer, later))
    assert (said.status, said.summary) == ("healthy", "All 3 ranks moved between the samples.")


@pytest.mark.parametrize(
    "odd",
    [still(1, BACKWARD), still(1, SHARD, state="T")],
    ids=["blocked", "stopped"],
)
def test_one_that_does_not_run_needs_no_further_sample(odd: RankCapture) -> None:
    odd.world_size = 3
    assert not status_and_more(seen(0, *GOING), odd, seen(2, *GOING))[1]


def test_polling_is_no_progress_whatever_the_loop_calls() -> None:
    """One rank works without end, and the others look for its file: nothing shows that the job goes on."""
    works = seen(0, SHARD, PARSES, SHARD, PARSES)
    looking = [polling(1, POLLS, LOOKS, POLLS, POLLS), polling(2, LOOKS, POLLS, POLLS, POLLS)]
    assert status_and_more(works, *looking)[0] != "healthy"
    all_look = polling(0, POLLS, POLLS, POLLS, LOOKS)
    assert status_and_more(all_look, *looking)[0] == "unknown"


def test_ranks_that_all_spin_at_one_line_are_not_said_to_go_on() -> None:
    spinning = [seen(rank, *[SHARD] * 6, cpu_s=0.9) for rank in range(3)]
    assert status_and_more(*spinning) == ("unknown", False)


def test_a_loop_that_sleeps_and_does_other_work_goes_on() -> None:
    control = [polling(rank, POLLS, BACKWARD, POLLS) for rank in range(3)]
    assert status_and_more(*control)[0] == "healthy"
    counting = [polling(rank, *(_turn(n) for n in (3, 4, 5))) for rank in range(3)]
    assert status_and_more(*counting)[0] == "healthy", "its counter shows it"


def _turn(number: int) -> list[Frame]:
    return [Frame("wait_for_all", "/app/train.py", 41, "", {"step": number}), *stack(MAIN)]
