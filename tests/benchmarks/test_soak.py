"""The soak in short: an hour and a half of the simulated job, some captures of a running one, a few
hundred hostile messages.
"""

from __future__ import annotations

import pytest

from benchmarks import soak_hostile
from benchmarks.soak import captures
from benchmarks.soak_hostile import attack
from benchmarks.soak_hours import Soak, simulate


def test_simulated_hours_without_a_false_alarm_or_a_lost_report() -> None:
    found = simulate(1.5, seed=3)
    assert found.alarms == [] and found.lost == 0
    assert found.reports > 9_000 and found.events.keys() >= {"hiccup", "agent restart"}


def test_the_simulation_can_fail() -> None:
    """A job that stops for good is an alarm, once."""
    soak = Soak(0.25, seed=3)
    soak.run()
    soak.job.kind, soak.job.until = "stall", 1e9
    soak.run()
    assert len(soak.result.alarms) >= 1 and "stall" in soak.result.alarms[0]


@pytest.mark.full
@pytest.mark.torch
def test_captures_of_a_running_job_stop_no_rank() -> None:
    found = captures(6, block=3)
    assert (found.captures, found.failed, found.stopped, found.ended_well) == (6, 0, 0, True)
    assert found.alone_s and found.captured_s


def test_hostile_messages_get_nowhere() -> None:
    found = attack(200)
    assert found.good, found.told()


def test_a_stranger_who_is_let_in_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the job's keys it is one of the job's nodes, and both checks say so."""
    with_keys = soak_hostile._dealer
    monkeypatch.setattr(
        soak_hostile, "_dealer", lambda folder, own, name: with_keys(folder, True, name)
    )
    found = attack(40)
    assert not found.good
    assert found.answered > 0 and "stranger" in found.nodes and "honest" in found.nodes
