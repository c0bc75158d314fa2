"""The rank that comes last to the collectives of a job that goes on; and who is only late once."""

from __future__ import annotations

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.operations import Operation, RankOps
from tests.support.captures import LOAD, WAIT, captured, causes, sample, thread

STEPS = 8
STEP_S = 2.0


def job(
    late_s: dict[int, list[float]],
    *,
    recorded: bool = True,
    node: str = "n1",
    grows: int = 1,
    pace: float = 1.0,
    passes_on: bool = False,
    in_step: int = 2,
) -> Diagnosis:
    """Four ranks that make `in_step` collectives a step; `late_s`: how late ranks come to each step, where a
    step takes `pace` times its seconds.
    """
    ranks = [
        moving(rank, late_s.get(rank, [0.0] * STEPS), recorded, grows, in_step) for rank in range(4)
    ]
    for rank in ranks:
        for call in rank.recorded.operations if rank.recorded is not None else ():
            call.entered_s *= pace
    if passes_on and ranks[0].recorded is not None:
        first = ranks[0].recorded.operations
        first.insert(len(first) - 1, Operation("g", 1, "send", "done", entered_s=20.0, peer=1))
    ranks[3].node = node
    nodes = [NodeCapture(n, ranks=[r for r in ranks if r.node == n]) for n in ("n1", "n2")]
    return diagnose(JobCapture("j", nodes, [], 4, taken=99.0))


def moving(rank: int, late_s: list[float], recorded: bool, grows: int, in_step: int) -> RankCapture:
    """A rank in another step at each sample, whose records are those of torch's recorder: it has no time
    at which an operation ended.
    """
    calls = []
    for step, late in enumerate(late_s):
        came = 10.0 + step * STEP_S + late + 0.001 * rank
        all_came = max(1.5, late) + 10.0 + step * STEP_S
        for n, at in enumerate([came, *(all_came + 0.01 * k for k in range(1, in_step))]):
            calls.append(Operation("g", in_step * step + n + 1, "all_reduce", "done", entered_s=at))
    ops = RankOps(rank, 4, source="flight_recorder", operations=calls)
    later, there = list(WAIT), list(LOAD)
    samples = [sample(n, thread(at, switches=9 * n)) for n, at in ((0.0, there), (1.0, later))]
    before = RankOps(rank, 4, source="flight_recorder", operations=calls[: len(calls) - grows])
    own = {"recorded": ops, "recorded_before": before, "ops": RankOps(rank, 4)}
    return captured(rank, samples, **own if recorded else {})


def test_who_comes_last_by_less_than_a_machine_shows_is_not() -> None:
    late = {2: [1.1, 1.3, 1.2, 0.2, 1.2, 1.3, 1.1, 1.2]}
    assert job(late, pace=0.1).status == "slow"
    for pace in (0.05, 0.005):  # all within a second: one rank may have had no core
        said = job(late, pace=pace)
        assert (said.status, causes(said)) == ("healthy", []), said.summary


def test_more_is_looked_at_where_steps_are_short() -> None:
    """24 collectives of a loaded machine, of a few milliseconds each, show chance."""
    lately = [*[0.0] * 46, *[1.2] * 6]
    assert job({2: lately, **{r: [0.0] * 52 for r in (0, 1, 3)}}, pace=0.06).status == "healthy"


def test_steps_of_many_collectives_are_looked_at_over_several_steps() -> None:
    """24 of them are two steps here, and who was late twice is not named."""
    late = {2: [1.1, 1.3, 1.2, 1.2, 1.2, 1.3, 1.1, 1.2]}
    assert causes(job(late, in_step=13)) == [("slow", [2])]


def test_the_stages_of_a_pipeline_come_in_its_order() -> None:
    """The first one ends its step last, in a job that is as fast as it can be."""
    late = {0: [1.1, 1.3, 1.2, 0.2, 1.2, 1.3, 1.1, 1.2]}
    assert job(late).status == "slow"
    assert job(late, passes_on=True).status == "healthy"


def test_who_comes_last_by_far_is_slow() -> None:
    said = job({2: [1.1, 1.3, 1.2, 0.2, 1.2, 1.3, 1.1, 1.2]})
    assert (said.status, causes(said)) == ("slow", [("slow", [2])])
    assert "the others wait for it" in said.summary and "comes 1.2 s after them" in said.summary


def test_who_is_late_once_or_by_turns_is_not() -> None:
    for late in (
        {},
        {2: [9.0, *[0.0] * 7]},  # its start
        {2: [0.0, 0.0, 1.4, 0.0, 0.0, 1.4, 0.0, 0.0]},  # twice
        {2: [0.1] * STEPS},
        {rank: [1.2 * (step % 4 == rank) for step in range(STEPS)] for rank in range(4)},
    ):
        said = job(late)
        assert (said.status, said.causes) == ("healthy", []), late


def test_clocks_of_two_nodes_and_ranks_without_records_are_not_compared() -> None:
    late = {2: [1.2] * STEPS}
    assert job(late, node="n2").causes == [] and job(late, recorded=False).causes == []
    assert job(late, grows=0).causes == [], "no record has grown: what was before says nothing"


def test_two_that_come_late_together_are_named_together() -> None:
    both = [1.1, 1.3, 1.2, 0.2, 1.2, 1.3, 1.1, 1.2]
    said = job({1: both, 2: [late + (0.05 if n % 2 else -0.05) for n, late in enumerate(both)]})
    assert (said.status, causes(said)) == ("slow", [("slow", [1, 2])])
    assert "the others wait for them" in said.summary and "they come 1.1" in said.summary


def test_two_that_are_late_by_turns_are_not() -> None:
    turns = {1: [1.2, 0.0] * 4, 2: [0.0, 1.2] * 4}
    said = job(turns)
    assert causes(said) == []
