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
    programs = [_as_called(p, right, wrong) for p in before.programs]
    programs[other] = [
        _like(step, right) if _is_that_call(step, wrong) else step for step in programs[other]
    ]
    simulation = Simulation(members, programs, before.run_ahead)
    simulation.run()
    return Exporter(_snapshot(snapshot, simulation, members)), pair


def _as_called(program: list[Step], right: Step, wrong: Step) -> list[Step]:
    """A program that makes every call of that line as the culprit made it."""
    return [
        _like(step, wrong) if (step.site, step.axis, step.op) == _line(right) else step
        for step in program
    ]


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
