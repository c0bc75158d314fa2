"""What leaves the same evidence as a case, run as jobs of their own.

Differences: a rank whose host stops right after its wrong call may have left the other one out, or have
meant to make it next. Silent ranks: where several are in the way of one operation, each of them may be
the one that is at fault. Where every rank that was seen is left with the same evidence, nothing can say
which it was, and either difference, or the set of silent ranks, is the right answer. A verdict on a silent
rank that would be right of another such job is neither right nor wrong: it is counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from . import sim_mirror
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


def equally_suspect(case: Case, named: set[int], evidence: Evidence) -> bool:
    """Whether all of these ranks are silent, the culprit is one of them, and each of the others would
    have left the same evidence if it had never entered the operation that it is in.
    """
    silent = set(case.missing)
    sets = [set(some) for some in (case.truth.ranks, *case.truth.alternatives)]
    culprits = next((some for some in sets if some and some < named), None)
    if culprits is None or not named <= silent:
        return False
    seen = [r for r in range(case.layout.world_size) if r not in silent]
    left = {r: evidence(case.exporter, r) for r in seen}
    for other in sorted(named - culprits):
        twins = (_stopped(case, other, place) for place in _places_of(case, other))
        if not any(all(evidence(twin, r) == left[r] for r in seen) for twin in twins):
            return False
    return True


def another_job(case: Case, named: set[int], evidence: Evidence) -> bool:
    """Whether the one rank that is named is silent, and a job in which it never enters some operation
    would have left the same evidence: of this program, or of one in which the wrong call is right.
    """
    silent = set(case.missing)
    if len(named) != 1 or not named <= silent:
        return False
    [rank] = named
    before = case.exporter.snapshot.simulation
    seen = [r for r in range(case.layout.world_size) if r not in silent]
    left = {r: evidence(case.exporter, r) for r in seen}
    for programs in [_without_fault(case).programs, *sim_mirror.programs_as_called(case)]:
        for place in range(len(programs[rank])):
            simulation = Simulation(before.members, programs, before.run_ahead)
            simulation.stop_host[rank] = place
            simulation.run()
            twin = Exporter(case.exporter.snapshot._replace(simulation=simulation))
            if all(evidence(twin, r) == left[r] for r in seen):
                return True
    return False


def _places_of(case: Case, rank: int) -> list[int]:
    """The steps that a rank's device waits in."""
    simulation = case.exporter.snapshot.simulation
    waits = [place for place, _ in simulation.pending(rank)]
    return [*waits, simulation.at[rank]]


def _stopped(case: Case, rank: int, place: int) -> Exporter:
    """The job without its fault, and one rank that never enters this step."""
    snapshot = case.exporter.snapshot
    simulation = _without_fault(case)
    simulation.stop_host[rank] = min(place, simulation.stop_host[rank])
    simulation.run()
    return Exporter(snapshot._replace(simulation=simulation))


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
    simulation = _without_fault(case)
    rewrite(simulation, snapshot.programs, culprit, steps)
    simulation.run()
    return Exporter(snapshot._replace(simulation=simulation))


def _without_fault(case: Case) -> Simulation:
    snapshot = case.exporter.snapshot
    members = snapshot.members
    by_rank = [snapshot.programs.by_stage[stage] for stage in members.stage]
    return Simulation(members, by_rank, snapshot.simulation.run_ahead)
