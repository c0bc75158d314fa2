"""Which differences leave the same evidence: a rank whose host stops right after its wrong call may
have left the other one out, or have meant to make it next.

Each reading of the first wrong call is run as a job of its own. Where it leaves every rank with the same
evidence to the byte, nothing can say which of the two it was, and either is the right answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .sim_dumps import Exporter, active_only
from .sim_engine import Simulation
from .sim_faults import rewrite
from .sim_program import Step
from .simulate import Case

Evidence = Callable[[Exporter, int], object]


def same_evidence(case: Case, evidence: Evidence) -> set[str]:
    """Differences, as `Cause.difference` says them, that would have left what this case left."""
    if len(case.truth.ranks) != 1:
        return set()
    [culprit] = case.truth.ranks
    seen = [r for r in range(case.layout.world_size) if r not in set(case.missing)]
    left = {r: evidence(case.exporter, r) for r in seen}
    found = set()
    for difference, steps in _readings(case, culprit):
        twin = _run(case, culprit, steps)
        if all(evidence(twin, r) == left[r] for r in seen):
            found.add(difference)
    return found


def of_dumps(case: Case) -> Evidence:
    """What a dump file of this case holds."""
    if case.settings.only_active:
        return lambda exporter, rank: active_only(exporter.dump(rank))
    return lambda exporter, rank: exporter.dump(rank)


def of_memory(exporter: Exporter, rank: int) -> object:
    """What a black box of this case holds."""
    return exporter.rank_ops(rank)


def _readings(case: Case, culprit: int) -> Iterator[tuple[str, list[Step]]]:
    """The program with each difference at the place of the first wrong call."""
    snapshot = case.exporter.snapshot
    right = snapshot.programs.by_stage[snapshot.stage(culprit)]
    wrong = snapshot.simulation.programs[culprit]
    pairs = enumerate(zip(right, wrong, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), None)
    if at is None or at + 1 >= len(right):
        return
    yield "skipped", [*right[:at], *right[at + 1 :]]
    yield "added", [*right[:at], wrong[at], *right[at:]]
    yield "swapped", [*right[:at], right[at + 1], right[at], *right[at + 2 :]]


def _run(case: Case, culprit: int, steps: list[Step]) -> Exporter:
    snapshot = case.exporter.snapshot
    members, programs = snapshot.members, snapshot.programs
    by_rank = [programs.by_stage[stage] for stage in members.stage]
    simulation = Simulation(members, by_rank, snapshot.simulation.run_ahead)
    rewrite(simulation, programs, culprit, steps)
    simulation.run()
    return Exporter(snapshot._replace(simulation=simulation))
