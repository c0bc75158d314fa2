"""Evidence shortens the wait, and only evidence: the core in simulated time, with evaluations,
checkpoints and hiccups.
"""

from __future__ import annotations

import itertools
import random

import pytest

from hangdoctor.collector.instructions import Conclude
from tests.support.simulated import FAULTS, FOREVER, STEP, Pause, Plan, Simulation, steady, stuck


def restless(seed: int, hours: float, marks: bool, hiccups: float = 3.5) -> Plan:
    """Evaluations and checkpoints, with marks or work that shows, and now and then a batch that
    comes late.
    """
    chance = random.Random(seed)
    yield from (Pause(chance.uniform(0, 20), busy=(0,)) for _ in range(3))
    yield Pause(70.0, busy=tuple(range(8)))  # compiling
    passed = 0.0
    for number in itertools.count():
        if passed > hours * 3600:
            return
        seconds = STEP * (5 if chance.random() < 0.02 else chance.uniform(0.8, 1.3))
        phase = "train" if marks else ""
        pause = Pause(seconds, phase, outside=(number % 8,))
        if chance.random() < 0.001:
            pause = Pause(chance.uniform(0.5, hiccups), phase, outside=(chance.randrange(8),))
        yield pause
        passed += pause.seconds
        if number % 600 == 599:
            for _ in range(5):
                yield Pause(
                    chance.uniform(2, 8), "evaluation" if marks else "", busy=() if marks else (0,)
                )
        if number % 1500 == 1499:
            yield Pause(
                chance.uniform(30, 60), "checkpoint" if marks else "", busy=() if marks else (0,)
            )


@pytest.mark.parametrize("fault", FAULTS)
def test_a_pause_with_a_cause_is_a_verdict_within_five_seconds(fault: str) -> None:
    job = Simulation(stuck(FAULTS[fault]))
    assert job.run(60) == []
    [seconds] = job.run(60, until_verdict=True)
    assert 2.9 < seconds < 5
    assert job.run(600) == [], "once"
    assert job.core.counters.incidents == 1


def test_a_node_that_goes_silent_is_a_verdict_within_five_seconds() -> None:
    job = Simulation(stuck(Pause(FOREVER)))
    job.run(60)
    job.away = {2}
    [seconds] = job.run(60, until_verdict=True)
    assert seconds < 5
    [one] = job.concluded
    assert [(s.node, s.ranks) for s in one.capture.silent] == [("n2", [4, 5])]


def test_without_evidence_the_wait_is_as_long_as_ever() -> None:
    for pause in (
        Pause(FOREVER),
        Pause(FOREVER, outside=tuple(range(8))),
        Pause(FOREVER, stopped=tuple(range(8))),
    ):
        job = Simulation(stuck(pause))
        [seconds] = job.run(120, until_verdict=True)
        assert 6 < seconds < 10, (
            pause
        )  # all in one operation: the network, perhaps; and one that all are outside of


def test_a_rank_that_works_is_waited_for() -> None:
    job = Simulation(stuck(Pause(FOREVER, busy=(7,))))
    [seconds] = job.run(400, until_verdict=True)
    assert seconds > 119


def test_a_pause_that_ends_is_dropped_and_no_one_hears_of_it() -> None:
    def plan() -> Plan:
        yield from steady(60)
        yield Pause(3.8, outside=(7,))
        yield from steady(600)

    job = Simulation(plan())
    assert job.run(300) == []
    counters = job.core.counters
    assert (counters.incidents, counters.false_alarms, counters.dropped) == (0, 0, 1)
    assert job.concluded == []


def test_a_pause_that_was_seen_before_gets_longer_than_that() -> None:
    def plan() -> Plan:
        yield from steady(60)
        yield Pause(3.8, outside=(7,))
        yield from steady(60)
        yield FAULTS["outside"]

    job = Simulation(plan())
    [seconds] = job.run(600, until_verdict=True)
    assert 11 < seconds < 14


@pytest.mark.parametrize("status", ["healthy", "unknown"])
def test_a_capture_on_evidence_that_shows_no_hang_is_no_incident(status: str) -> None:
    """The full bound stands behind it: the same pause is looked at once more, as always."""
    job = Simulation(stuck(FAULTS["outside"]))
    job.judge = lambda one: status if one.early else "hang"
    job.run(64.9)
    assert [one.early for one in job.concluded] == [True]
    counters = job.core.counters
    assert (counters.incidents, counters.false_alarms, counters.dropped) == (0, 0, 1)
    [seconds] = job.run(60, until_verdict=True)
    assert 6 < seconds < 10 and not job.concluded[-1].early


def test_a_node_that_speaks_again_is_no_evidence_any_more() -> None:
    job = Simulation(stuck(Pause(9.0), 60))
    job.plan = itertools.chain(job.plan, steady(600))
    job.run(60)
    job.away = {2}
    job.run(3.5)
    job.away = set()
    job.run(1.2)
    assert job.core.counters.dropped == 1 and job.verdicts == []


def test_what_a_person_asks_for_waits_until_the_agents_are_done_with_a_dropped_capture() -> None:
    """It begins after that, is asked for once, and every node answers it."""

    def plan() -> Plan:
        yield from steady(60)
        yield Pause(3.8, outside=(7,))
        yield from steady(600)

    job = Simulation(plan())
    job.late_s = 5.0
    job.run(62.5)
    assert job.core.captures.early.suspicion is not None
    job.core.ask("asked for on the page")
    job.run(20)
    assert job.core.counters.dropped == 1
    _, second = dict.fromkeys(id for id, _ in job.asked)
    assert all(due == 0 for id, due in job.asked if id == second)
    [one] = job.concluded
    assert one.reason.words == "asked for on the page" and not one.capture.silent


def test_hours_of_a_restless_job_raise_no_alarm() -> None:
    for seed, marks in ((0, True), (1, False)):
        job = Simulation(restless(seed, 1.5, marks), seed=seed)
        while job.now < 1000 + 1.4 * 3600:
            job.run(1200)
            job.jump(random.Random(seed).uniform(1, 60))
            job.hello(seed, f"again-{job.now:.0f}")
        assert job.verdicts == [], (marks, job.concluded)
        assert job.core.counters.false_alarms == 0


def test_an_agent_that_is_restarted_in_a_pause_is_no_evidence() -> None:
    """Its ranks' last word was said before the pause began."""
    job = Simulation(stuck(Pause(5.5, outside=(7,)), 60))
    job.plan = itertools.chain(job.plan, steady(600))
    job.run(59.5)
    job.away = {0, 1, 2, 3}
    job.run(5.0)
    job.away = set()
    job.run(60)
    assert job.verdicts == [] and not any(isinstance(c, Conclude) for c in job.concluded)
