"""Ranks that one line of the program gives different parts, groups chosen at a line, and one rank for
which the transfers of several wait.
"""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.diagnosis.position import have_other_parts
from hangdoctor.model.capture import (
    Frame,
    JobCapture,
    NodeCapture,
    ProcessSample,
    RankCapture,
    ThreadSample,
)
from hangdoctor.model.diagnosis import Diagnosis

APP, TORCH = "/app/pop.py", "/venv/site-packages/torch/distributed/distributed_c10d.py"
MAIN = Frame("main", APP, 76, code="member(rank) if rank < members else judge()")


def stack(*inner: Frame) -> list[Frame]:
    return [MAIN, *inner]


def waits(name: str, line: int, call: str, caller: str = "main", **values: int) -> list[Frame]:
    """The user's line and torch's frame, outermost first."""
    return [Frame(caller, APP, line, code=call), Frame(name, TORCH, 3151, values=values)]


def diagnosed(stacks: list[list[Frame]]) -> Diagnosis:
    """Of ranks that sit at these stacks, outermost first, at both samples."""
    ranks = []
    for rank, frames in enumerate(stacks):
        thread = ThreadSample(rank + 1, "MainThread", state="S", switches=1, frames=frames[::-1])
        samples = [ProcessSample(at, "S", threads=[thread]) for at in (0.0, 2.0)]
        ranks.append(RankCapture(pid=rank + 1, rank=rank, world_size=len(stacks), samples=samples))
    return diagnose(JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=len(stacks)))


SHARE = waits("broadcast", 37, "dist.broadcast(x, src=best, group=group)", "exploit")
JUDGE = waits("all_reduce", 67, "dist.all_reduce(loss)", "judge")


def test_a_rank_with_a_part_of_its_own_is_not_the_odd_one() -> None:
    found = diagnosed([stack(*SHARE)] * 4 + [stack(*JUDGE)])
    assert (found.status, found.causes) == ("unknown", []), found.summary
    assert "rank 4 in all_reduce in judge (pop.py:67)" in found.summary


def test_one_that_a_line_of_its_own_led_elsewhere_is() -> None:
    elsewhere = Frame("main", APP, 80, code="judge()")
    found = diagnosed([stack(*SHARE)] * 4 + [[elsewhere, *JUDGE]])
    assert [(c.kind, c.ranks) for c in found.causes] == [("order", [4])], found.summary


def test_parts_differ_where_one_line_of_the_users_calls_two_functions_of_the_users() -> None:
    assert have_other_parts(stack(*SHARE), stack(*JUDGE))
    assert not have_other_parts(stack(*SHARE), stack(SHARE[0], JUDGE[1])), "torch's"
    hook = Frame("call_event", "/venv/site-packages/transformers/trainer.py", 5)
    assert not have_other_parts([hook, *SHARE], [hook, *JUDGE]), "a library's callbacks"


def test_a_rank_in_a_group_of_few_may_wait_for_one_that_is_in_the_backward() -> None:
    """Its group's other member may have left that call out."""
    norm = waits("all_reduce", 23, "dist.all_reduce(x, group=self.group)", "forward")
    norm[-1].group = "sub"
    engine = "/venv/site-packages/torch/autograd/graph.py"
    backward = [Frame("main", APP, 69, code="loss.backward()")]
    backward.append(Frame("_engine_run_backward", engine, 979, code="return run_backward("))
    found = diagnosed([backward] * 3 + [[Frame("main", APP, 66, code="model(x)"), *norm]])
    assert (found.status, found.causes) == ("unknown", []), found.summary


def test_a_line_that_chooses_its_group_shows_no_common_operation() -> None:
    chosen = waits("all_reduce", 37, "dist.all_reduce(x, group=self.groups[task])")
    found = diagnosed([stack(*chosen)] * 4)
    assert (found.status, found.causes) == ("unknown", []), found.summary
    assert "whose line takes its group from a variable" in found.summary
    first = waits("all_reduce", 37, "dist.all_reduce(x, group=self.groups[0])")
    assert diagnosed([stack(*first)] * 4).causes[0].kind == "in_communication"


@pytest.mark.parametrize(
    ("call", "of", "chosen"),
    [
        ("dist.all_gather_object(out, value, group=group)", "sub", True),
        ("dist.all_gather_object(out, value, group=group)", "world", False),
        ("dist.all_gather_object(out, value, group=self.group)", "sub", False),
        ("t = local.redistribute(mesh, [Replicate()]).to_local()", "", True),
    ],
)
def test_a_variable_that_holds_a_small_group_chooses_it_too(
    call: str, of: str, chosen: bool
) -> None:
    """All ranks of the job cannot be its members."""
    frames = waits("all_gather_object", 32, call, "_gather")
    frames[-1].group = of
    found = diagnosed([stack(*frames)] * 4)
    assert ("whose line takes its group from a variable" in found.summary) == chosen, found.summary
    assert (found.status == "unknown") == chosen


def test_the_rank_for_which_the_transfers_of_all_others_wait_is_named() -> None:
    """A middle stage that went on to the broadcast, between one that sends and one that receives."""
    before = waits("send", 50, "dist.send(x, dst=1)", dst=1)
    after = waits("recv", 52, "dist.recv(x, src=1)", src=1)
    past = waits("broadcast", 54, "dist.broadcast(x, src=2)", src=2)
    past[-1].group = "world"
    found = diagnosed([before, past, after])
    assert [(c.kind, c.ranks) for c in found.causes] == [("order", [1])], found.summary
