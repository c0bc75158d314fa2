"""One rank at work in all samples while the others mostly wait, and have turns of work between."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.diagnosis.third_sample import why_more
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture, RankCapture
from tests.support.captures import C10D, captured, causes, sample, stack, thread

GRAPH = "/v/site-packages/torch/autograd/graph.py"
MAIN = ("work", "/app/train.py", 73)
WAITS = stack(("_engine_run_backward", GRAPH, 979), MAIN)
COLLECTS = stack(("Collector.run", "/app/train.py", 56), MAIN)
LOADS = stack(("read_shard", "/app/data.py", 7), MAIN)
RECEIVES = stack(("recv", C10D, 9), MAIN)
POLLS = stack(("wait_for_file", "/app/train.py", 41), MAIN)


def seen(
    rank: int, stacks: Sequence[list[Frame]], call: str = "futex", cpu_s: float = 0.4
) -> RankCapture:
    """A rank by its stack in each sample: asleep in waits, computing elsewhere."""
    samples = []
    for n, frames in enumerate(stacks):
        waits = frames in (WAITS, RECEIVES, POLLS)
        state, used = ("S", 0.02 * n) if waits else ("R", cpu_s * n)
        one = thread(
            frames, state=state, switches=50 * n, cpu_s=used, syscall=call if waits else ""
        )
        samples.append(sample(1.3 * n, one, state=state))
    return captured(rank, samples)


def turns(*at_work: int, samples: int = 6, waits: list[Frame] = WAITS) -> list[list[Frame]]:
    """A rank that was found at its own collection in these samples, else in a wait."""
    return [COLLECTS if n in at_work else waits for n in range(samples)]


SLOW = seen(2, [COLLECTS] * 6)


def capture_of(*ranks: RankCapture) -> JobCapture:
    return JobCapture("j", [NodeCapture("n1", ranks=list(ranks))], [], 4, taken=1.0)


def test_the_rank_that_the_others_mostly_wait_for_is_slow() -> None:
    others = [seen(0, turns(3)), seen(1, turns(3)), seen(3, turns(1, 5))]
    said = diagnose(capture_of(*others[:2], SLOW, others[2]))
    assert (said.status, causes(said)) == ("slow", [("slow", [2])])
    assert "in all 6 samples over 6.5 s it was at work, while the others waited in 78 % of" in (
        said.summary
    )
    assert said.causes[0].where.frame == "Collector.run (/app/train.py:56)"


def test_two_samples_are_too_few() -> None:
    few = [seen(0, turns(samples=2)), seen(1, turns(samples=2)), seen(2, [COLLECTS] * 2)]
    capture = capture_of(*few, seen(3, turns(1, samples=2)))
    said = diagnose(capture)
    assert causes(said) == [] and "one rank may be slow" in why_more(capture, said)


def short(rank: int, *at_work: int, samples: int = 6) -> RankCapture:
    """It was found at work by chance, and for milliseconds: it used next to no CPU."""
    return seen(rank, turns(*at_work, samples=samples), cpu_s=0.02)


def test_cpu_times_show_it_where_samples_found_all_at_work() -> None:
    """All have their short turns at one moment, so that a sample finds all in them, or none."""
    said = diagnose(capture_of(short(0, 1, 3), short(1, 1, 3), SLOW, short(3, 1, 2, 4, 5)))
    assert (said.status, causes(said)) == ("slow", [("slow", [2])])
    assert "was at work (31 % CPU, the others at most 2 %); it is in Collector.run" in said.summary
    two = [short(0, 1, samples=2), short(1, 1, samples=2), seen(2, [COLLECTS] * 2)]
    capture = capture_of(*two, short(3, 1, samples=2))
    said = diagnose(capture)
    assert causes(said) == [] and "one rank may be slow" in why_more(capture, said)


CALM = [seen(0, turns(3)), seen(1, turns(3))]
NOT_SLOW = {
    "one more is at work as often": [*CALM, SLOW, seen(3, [COLLECTS] * 6)],
    "others work in half of them": [
        seen(0, turns(0, 2, 4)),
        seen(1, turns(1, 3, 5)),
        SLOW,
        seen(3, turns(0, 1, 2)),
    ],
    "it waits in one, too": [*CALM, seen(2, turns(0, 1, 2, 4, 5)), seen(3, turns(1))],
    "a pipeline": [
        *(seen(r, turns(3, waits=RECEIVES)) for r in (0, 1)),
        SLOW,
        seen(3, turns(1, waits=RECEIVES)),
    ],
}


@pytest.mark.parametrize("ranks", NOT_SLOW.values(), ids=NOT_SLOW)
def test_what_may_be_chance_names_no_rank(ranks: list[RankCapture]) -> None:
    assert all(kind != "slow" for kind, _ in causes(diagnose(capture_of(*ranks))))


def test_ranks_that_have_come_to_the_wait_and_stay_show_no_job_that_goes_on() -> None:
    """They were late and wait since: the one at work may never come."""
    late = [seen(0, turns(0)), seen(1, turns(0, 1)), SLOW, seen(3, turns(0))]
    assert diagnose(capture_of(*late)).status != "slow"


def test_one_that_polls_is_not_at_work() -> None:
    polls = seen(2, [POLLS] * 6, call="clock_nanosleep")
    others = [seen(0, turns(3)), seen(1, turns(3)), polls, seen(3, turns(1))]
    assert diagnose(capture_of(*others)).status != "slow"


STARTS = stack(("all_reduce", C10D, 3100), MAIN)
AWAITS = stack(("all_reduce", C10D, 3109), MAIN)


@pytest.mark.parametrize("samples", [2, 6])
def test_a_collective_that_was_just_begun_is_no_turn_of_a_job_that_goes_on(samples: int) -> None:
    """The first sample found it on the line that starts the collective, all others on the one that waits."""

    def begins(rank: int) -> RankCapture:
        found = seen(rank, [STARTS, *[AWAITS] * (samples - 1)], cpu_s=0.0)
        for one in found.samples:
            one.threads[0].state = "S"
        return found

    at_work = seen(2, [COLLECTS] * samples, cpu_s=0.6)
    said = diagnose(capture_of(begins(0), begins(1), at_work, begins(3)))
    assert said.status != "slow"
