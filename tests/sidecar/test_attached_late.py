"""A sidecar that comes late: the boxes' own history shows the rhythm, and what is not in it is
judged patiently.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hangdoctor.probe import format as fmt
from hangdoctor.probe.box import BoxWriter
from hangdoctor.readers import blackbox
from hangdoctor.readers.box_history import merged, past_of
from hangdoctor.readers.box_position import BoxWatch
from tests.support.polling import SCRIPT, incidents, polling_environment, steps
from tests.support.sidecar_stage import Job, Start
from tests.support.simulated import FAULTS, FOREVER, NODES, Pause, Plan, Simulation, steady, stuck
from tests.support.stage import wait_until

STEADY = Path(__file__).parents[1] / "support" / "jobs" / "steady_job.py"

# ----------------------------------------------------------------- in simulated time


@pytest.mark.parametrize("fault", FAULTS)
def test_a_job_that_hangs_already_gets_its_verdict_within_ten_seconds(fault: str) -> None:
    job = Simulation(stuck(FAULTS[fault]), unwatched_s=100)
    begun = job.now
    assert len(job.run(60, until_verdict=True)) == 1
    assert job.now - begun < 7
    assert job.run(300) == []


EXPECTED = frozenset(f"n{node}" for node in range(NODES))


@pytest.mark.parametrize("fault", FAULTS)
def test_when_all_expected_nodes_have_come_no_other_is_waited_for(fault: str) -> None:
    waited = []
    for expected in (frozenset[str](), EXPECTED, EXPECTED | {"n9"}):
        job = Simulation(stuck(FAULTS[fault]), unwatched_s=100, expected=expected)
        begun = job.now
        assert len(job.run(60, until_verdict=True)) == 1
        waited.append(job.now - begun)
    unknown, all_came, one_is_away = waited
    assert all_came < unknown
    assert one_is_away >= unknown


@pytest.mark.parametrize("fault", FAULTS)
def test_a_node_whose_first_report_is_long_under_way_is_not_waited_for_twice(fault: str) -> None:
    """It says itself how old it is, and what comes after it is of now."""
    job = Simulation(stuck(FAULTS[fault]), unwatched_s=100, expected=EXPECTED, slow={2: 4.6})
    begun = job.now
    assert len(job.run(60, until_verdict=True)) == 1
    assert job.now - begun < 4.6 + 3


def test_one_that_hangs_in_one_operation_too() -> None:
    job = Simulation(stuck(Pause(FOREVER)), unwatched_s=100)
    begun = job.now
    assert len(job.run(60, until_verdict=True)) == 1
    assert job.now - begun < 9


def test_first_steps_are_given_the_time_of_first_steps() -> None:
    def plan() -> Plan:
        yield from (Pause(0.2) for _ in range(15))
        yield Pause(FOREVER, outside=(7,))

    job = Simulation(plan(), unwatched_s=60)
    assert job.run(200) == []
    assert len(job.run(100, until_verdict=True)) == 1


def long_phases(marked: bool, busy: bool, first: bool) -> Plan:
    """A checkpoint of 45 s, the first one or the third."""
    for _ in range(0 if first else 3):
        yield from steady(100)
        yield Pause(45.0, "checkpoint" if marked else "", outside=(0,), busy=(0,) if busy else ())
    yield from steady(100)
    yield Pause(45.0, "checkpoint" if marked else "", outside=(0,), busy=(0,) if busy else ())
    yield from steady(10_000)


@pytest.mark.parametrize(
    ("marked", "busy", "first"),
    [
        (True, False, True),
        (True, False, False),
        (False, True, True),
        (False, True, False),
        (False, False, False),
    ],
)
def test_a_job_in_the_middle_of_a_long_phase_is_left_alone(
    marked: bool, busy: bool, first: bool
) -> None:
    """By its marks, by its work, or because it was there before."""
    until = 100.0 if first else 100.0 + 3 * 145.0
    for into in (2.0, 20.0, 40.0):
        job = Simulation(long_phases(marked, busy, first), unwatched_s=until + into)
        assert job.run(200) == [], into
        assert job.core.watchdog.learned.warm


# ----------------------------------------------------------------- a box


class Ring:
    """A box whose ring the test writes, as the main thread of a rank."""

    def __init__(self, folder: Path) -> None:
        self.box = BoxWriter(folder, "past-test", 1 << 20)
        self.serial, self.at = 0, 1_000.0
        fmt.THREAD.pack_into(
            self.box.map, self.box.regions["threads"][0], self.box.pid, 1, 0, 0, b"MainThread"
        )

    def put(self, group: int, text: str, flags: int, kind: int = -1, thread: int = 0) -> None:
        self.serial += 1
        begin, slots, width = self.box.regions["ring"]
        at, left = round(self.at * 1e9), round((self.at + 0.01) * 1e9)
        record = (
            self.serial,
            1,
            at,
            group,
            self.box.intern(text),
            0,
            thread,
            kind,
            1,
            flags,
            0,
            left,
            0,
            self.serial,
        )
        fmt.RECORD.pack_into(self.box.map, begin + self.serial % slots * width, *record)

    def step(self, seconds: float) -> None:
        self.put(fmt.NO_GROUP, "", fmt.MARK, fmt.ITERATION)
        self.at += seconds
        self.put(0, "all_reduce\tsum\tfloat32\t[4]", 0)

    def phase(self, name: str) -> None:
        self.put(fmt.NO_GROUP, name, fmt.MARK, fmt.PHASE)


def test_the_past_of_a_box_is_known_by_phase_without_the_first_steps(tmp_path: Path) -> None:
    ring = Ring(tmp_path)
    ring.step(70.0)  # compiling
    for number in range(200):
        ring.step(0.2)
        if number % 50 == 20:
            ring.phase("checkpoint")
            ring.at += 30.0
            ring.put(0, "barrier\t\t\t", 0)
            ring.phase("")
            ring.at += 0.1
    watch = BoxWatch(ring.box.path)
    past = past_of(watch)
    watch.close()
    assert past.steps == 201
    told = {p.name: p for p in past.phases}
    assert 0.1 < told[""].usual_s < 0.25 and told[""].longest_s < 0.3
    assert (told["checkpoint"].pauses, round(told["checkpoint"].longest_s)) == (4 * 3, 30)


def test_threads_that_poll_are_no_part_of_the_past(tmp_path: Path) -> None:
    ring = Ring(tmp_path)
    for _ in range(30):
        ring.step(4.0)
        for _ in range(8):
            ring.put(fmt.NO_GROUP, "store_wait\t\t\t", 0, thread=1)
            ring.put(1, "all_reduce\tsum\tfloat32\t[1]", 0, thread=1)
            ring.at += 0.5
    width = fmt.THREAD.size
    fmt.THREAD.pack_into(
        ring.box.map, ring.box.regions["threads"][0] + width, 9, ring.serial, 0, 0, b"poller"
    )
    watch = BoxWatch(ring.box.path)
    [told] = past_of(watch).phases
    watch.close()
    assert told.usual_s > 3.9


def test_of_all_ranks_the_longest_counts(tmp_path: Path) -> None:
    made = []
    for seconds in (0.2, 0.5):
        (tmp_path / str(seconds)).mkdir()
        ring = Ring(tmp_path / str(seconds))
        for _ in range(40):
            ring.step(seconds)
        watch = BoxWatch(ring.box.path)
        made.append(past_of(watch))
        watch.close()
    both = merged(made)
    assert both is not None and both.steps == 40
    assert both.phases[0].usual_s > 0.45
    assert merged([]) is None


# ----------------------------------------------------------------- real ranks

OPTIMIZER = """
import os, sys, time
import hangdoctor.probe as p; p.install()
import torch, torch.distributed as dist
dist.init_process_group("gloo")
weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(60):
    weight.grad = torch.ones(1)
    optimizer.step()
    time.sleep(0.02)
print("trained", flush=True); sys.stdin.readline()
"""


@pytest.mark.torch
@pytest.mark.full
def test_steps_of_an_optimizer_are_a_past_where_no_operation_is_seen(tmp_path: Path) -> None:
    environ = os.environ | {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "HANGDOCTOR_DIR": str(tmp_path),
    }
    command = [sys.executable, "-c", OPTIMIZER]
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "trained"
            watch = BoxWatch(blackbox.find_boxes(tmp_path)[0].path)
            past = past_of(watch)
            watch.close()
        finally:
            process.kill()
    assert past.steps == 60
    [told] = past.phases
    assert told.pauses > 50 and told.usual_s >= 0.02


@pytest.mark.torch
@pytest.mark.timeout(240)
@pytest.mark.full
def test_a_sidecar_that_comes_after_the_hang_names_it_and_so_does_its_successor(
    job: Job, start: Start
) -> None:
    environ = polling_environment(job)
    control = job.logs / "control"
    for rank in ("0", "1"):
        start(f"rank{rank}", str(SCRIPT), str(control), **environ, RANK=rank)
    wait_until(lambda: (control / "at.0").exists(), "it begins", 100)
    wait_until(lambda: steps(job) >= 250, "it trains", 100)
    (control / "loader").touch()
    wait_until(lambda: rests(job), "it hangs")
    for number in (1, 2):
        collector = job.collector()
        agent = job.agent("n1", environ["TORCHELASTIC_RUN_ID"])
        wait_until(lambda n=number: len(incidents(job)) == n, "a verdict", 80)  # type: ignore[misc]
        found = incidents(job)[number - 1]
        assert (found.status, found.ranks) == ("hang", "1"), found.summary
        for process in (agent, collector):
            process.terminate()
            process.wait(timeout=30)


def rests(job: Job) -> bool:
    """Whether no rank has written its steps for some seconds: it writes them each second."""
    before = steps(job)
    time.sleep(2.5)
    return steps(job) == before


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.timeout(240)
def test_ranks_without_a_box_are_judged_by_two_stacks_and_a_healthy_job_is_left_alone(
    job: Job, start: Start
) -> None:
    environ = polling_environment(job) | {"BARE": "1"}
    control = job.logs / "control"
    for rank in ("0", "1"):
        start(f"rank{rank}", str(STEADY), str(control), **environ, RANK=rank)
    wait_until(lambda: (control / "at.1").exists(), "it trains", 100)
    for hangs in (False, True):
        if hangs:
            (control / "loader").write_text("1")
            wait_until(lambda: rests(job), "it hangs")
        collector = job.collector()
        agent = job.agent("n1", environ["TORCHELASTIC_RUN_ID"])
        if hangs:
            wait_until(lambda: bool(incidents(job)), "a verdict", 90)
        else:
            watched_for(job, 45)
            assert incidents(job) == []
        for process in (agent, collector):
            process.terminate()
            process.wait(timeout=30)
    [found] = incidents(job)
    assert (found.status, found.ranks) == ("hang", "1"), found.summary
    assert "the same stack for 30 s" in found.reason


def watched_for(job: Job, seconds: float) -> None:
    """Let the agent report for this long, past the second stack of each rank, of a job that goes
    on.

    By the clock: counted in steps it would be several times as long on a busy machine.
    """
    before, end = steps(job), time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > end and steps(job) > before, "it goes on", 3 * seconds)
