"""Cases that their dumps cannot decide: the same dumps follow from another program and another culprit.

Where two members of a group of two disagree, the other one would be wrong if the program made this
call as the culprit did. That is run as well: where it leaves dumps equal to the byte, nothing in
them can say which of the two it was, and both is the right answer.
"""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

from .sim_dumps import Exporter, Snapshot, active_only
from .sim_engine import Members, Simulation
from .sim_program import Step
from .simulate import Case


def either(case: Case) -> list[int]:
    """The two ranks of which dumps of what is active cannot say which is wrong; [] where they can."""
    mirror = mirrored(case)
    if mirror is None:
        return []
    exporter, pair = mirror
    silent = set(case.missing)
    if silent & set(pair):
        return []
    seen = [r for r in range(case.layout.world_size) if r not in silent]
    same = all(_dump(case.exporter, r) == _dump(exporter, r) for r in seen)
    return sorted(pair) if same else []


def _dump(exporter: Exporter, rank: int) -> bytes:
    dump: dict[str, Any] = active_only(exporter.dump(rank))
    return pickle.dumps(dump, protocol=2)


def mirrored(case: Case) -> tuple[Exporter, list[int]] | None:
    """The job with a program that calls as the culprit did, and the other member at fault."""
    if case.changed is None:
        return None
    culprit, place, right = case.changed
    snapshot = case.exporter.snapshot
    before = snapshot.simulation
    members = before.members
    wrong = before.programs[culprit][place]
    pair = members.ranks[members.of[right.axis][culprit]]
    if right.p2p or wrong.p2p or len(pair) != 2 or wrong.axis != right.axis:
        return None
    [other] = [r for r in pair if r != culprit]
    programs = _as_called(before.programs, right, wrong)
    programs[other] = [
        _like(step, right) if _is_that_call(step, wrong) else step for step in programs[other]
    ]
    simulation = Simulation(members, programs, before.run_ahead)
    simulation.run()
    return Exporter(_snapshot(snapshot, simulation, members)), pair


def programs_as_called(case: Case) -> list[list[list[Step]]]:
    """Programs of all ranks in which the culprit's changed call is right: every call of that line is made
    so, or that one call of each group alone, as where sizes are others each time.
    """
    if case.changed is None:
        return []
    culprit, place, right = case.changed
    programs = case.exporter.snapshot.simulation.programs
    wrong = programs[culprit][place]
    if right.p2p or wrong.p2p or wrong.axis != right.axis:
        return []
    once = [
        [_like(step, wrong) if _is_that_call(step, right) else step for step in p] for p in programs
    ]
    return [_as_called(programs, right, wrong), once]


def _as_called(programs: list[list[Step]], right: Step, wrong: Step) -> list[list[Step]]:
    """Programs that make every call of that line as the culprit made it."""
    line = _line(right)
    return [[_like(step, wrong) if _line(step) == line else step for step in p] for p in programs]


def _line(step: Step) -> tuple[str, str, str]:
    return (step.site, step.axis, step.op)


def _is_that_call(step: Step, wrong: Step) -> bool:
    return (step.axis, step.seq, step.site) == (wrong.axis, wrong.seq, wrong.site)


def _like(step: Step, other: Step) -> Step:
    return dataclasses.replace(
        step,
        op=other.op,
        shape=other.shape,
        out_shape=other.out_shape,
        dtype=other.dtype,
        reduce_op=other.reduce_op,
        root=other.root,
    )


def _snapshot(before: Snapshot, simulation: Simulation, members: Members) -> Snapshot:
    assert simulation.members is members
    return before._replace(simulation=simulation)
