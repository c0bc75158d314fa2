"""The seven faults of `benchmarks.sidecar_latency` in simulated time: the slowest of several
moments at which they may happen.

What a real verdict takes beside this is the way of the last report, the diagnosis and the disk;
attached late, also the start of the agents.
"""

from __future__ import annotations

import pytest

from tests.support.simulated import FAULTS, FOREVER, NODES, Pause, Simulation, stuck

SEEDS = range(4)
EXPECTED = frozenset(f"n{node}" for node in range(NODES))
# What the ranks do, and which nodes are gone.
CASES: dict[str, tuple[Pause, set[int]]] = {
    "SIGSTOP": (FAULTS["stopped"], set()),
    "node frozen": (Pause(FOREVER), {1}),
    "data loader": (FAULTS["outside"], set()),
    "node cut off": (Pause(FOREVER), {3}),
    "skipped collective": (FAULTS["apart"], set()),
    "SIGKILL": (FAULTS["died"], set()),
    "node crashed": (Pause(FOREVER), {2}),
}


@pytest.mark.parametrize("fault", CASES)
def test_attached_before_the_fault(fault: str) -> None:
    pause, gone = CASES[fault]
    for seed in SEEDS:
        job = Simulation(stuck(pause, 60 + 0.23 * seed), seed=seed)
        while job.pause.seconds < FOREVER:
            job.step()
        job.away = gone
        [seconds] = job.run(60, until_verdict=True)
        assert seconds < 4.7, seed


@pytest.mark.parametrize("fault", CASES)
def test_attached_after_the_fault(fault: str) -> None:
    pause, gone = CASES[fault]
    for seed in SEEDS:
        job = Simulation(stuck(pause), seed=seed, unwatched_s=72, expected=EXPECTED)
        job.away = gone
        for node in gone:
            del job.core.nodes[f"n{node}"]  # nobody has ever heard of it
        begun = job.now
        assert len(job.run(60, until_verdict=True)) == 1
        assert job.now - begun < (7.5 if gone else 2.5), seed
