"""Faults for the simulation: each changes one rank's program, its host or its device, by
coordinate.

A fault function gets the simulation before it runs, a random generator and the iteration to strike
in; it returns what it did, or None where the rank that it drew has no such place.
"""

from __future__ import annotations

import dataclasses
import random
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from .sim_engine import NEVER, Simulation
from .sim_program import Programs, Step


@dataclass
class Placed:
    """A fault in its place."""

    ranks: list[int]
    kinds: list[str]  # names under which a diagnosis may report it
    detail: str
    gone: list[int] = field(
        default_factory=list
    )  # ranks whose process is gone, and its evidence with it
    alternatives: list[list[int]] = field(default_factory=list)
    holds_up: dict[int, list[int]] = field(
        default_factory=dict
    )  # culprit -> members of what it keeps waiting
    visible: bool = True
    # Where the signature of one call was changed: rank, step, and the step as it was.
    changed: tuple[int, int, Step] | None = None
    # All members of it have entered and no one sees why it does not end: a silent one of them might
    # as well be missing.
    complete: list[int] = field(default_factory=list)
    stopped: list[int] = field(
        default_factory=list
    )  # hosts that must have come to their stop for the fault to show


Fault = Callable[[Simulation, Programs, random.Random, int], "Placed | None"]


def shows(s: Simulation, placed: Placed) -> bool:
    """Someone hangs, and every culprit has come to its own fault instead of being blocked by
    another's.
    """
    return s.hung and all(s.drained(r) for r in placed.stopped)


def _places(s: Simulation, rank: int, iteration: int, wanted: Callable[[Step], bool]) -> list[int]:
    return [
        i for i, step in enumerate(s.programs[rank]) if step.iteration == iteration and wanted(step)
    ]


def _draw(
    s: Simulation,
    rng: random.Random,
    iteration: int,
    wanted: Callable[[Step], bool],
    among: list[int] | None = None,
) -> tuple[int, int] | None:
    """A random rank and a random step of it."""
    rank = rng.choice(among) if among else rng.randrange(len(s.programs))
    places = _places(s, rank, iteration, wanted)
    return (rank, rng.choice(places)) if places else None


def _describe(rank: int, step: Step) -> str:
    return f"rank {rank}, {step.op} #{step.seq} on {step.axis}, {step.site}, iteration {step.iteration}"


def _waiting_for(s: Simulation, rank: int, step: Step) -> list[int]:
    if step.p2p:
        return [rank, s.members.peer(rank, step.hop)]
    return s.members.ranks[s.members.of[step.axis][rank]]


def rewrite(s: Simulation, programs: Programs, rank: int, steps: list[Step]) -> None:
    """Give one rank a program of its own; its later operations are renumbered as the process would
    count them.
    """
    mine = programs.renumber(s.members.stage[rank], steps)
    s.programs[rank] = mine
    s.starts[rank] = array("d", [NEVER]) * len(mine)
    s.ends[rank] = array("d", [NEVER]) * len(mine)
    s.stop_host[rank] = s.stop_device[rank] = len(mine)


def _recorded(step: Step) -> bool:
    return step.op != "wait"


def _collective(step: Step) -> bool:
    return step.op != "wait" and not step.p2p


def not_entered(
    s: Simulation, programs: Programs, rng: random.Random, iteration: int
) -> Placed | None:
    """The host stops before an operation: asleep, in a loop, in a blocked read."""
    drawn = _draw(s, rng, iteration, _recorded)
    return _stop_host(s, *drawn) if drawn else None


def _stop_host(s: Simulation, rank: int, i: int) -> Placed:
    step = s.programs[rank][i]
    s.stop_host[rank] = i
    kinds = ["not_entered", "busy", "p2p_unmatched"] if step.p2p else ["not_entered", "busy"]
    return Placed(
        [rank],
        kinds,
        _describe(rank, step),
        holds_up={rank: _waiting_for(s, rank, step)},
        stopped=[rank],
    )


def dead(s: Simulation, programs: Programs, rng: random.Random, iteration: int) -> Placed | None:
    """The process is gone: host and device stop, and there is no dump."""
    drawn = _draw(s, rng, iteration, lambda step: _recorded(step) and not step.asynchronous)
    if not drawn:
        return None
    rank, i = drawn
    placed = _stop_host(s, rank, i)
    s.stop_device[rank] = i
    placed.gone, placed.kinds = [rank], ["dead", "unreachable", "not_entered", "p2p_unmatched"]
    return placed


def skipped(s: Simulation, programs: Programs, rng: random.Random, iteration: int) -> Placed | None:
    """One collective left out."""
    drawn = _draw(s, rng, iteration, _collective)
    return (
        _without(s, programs, *drawn, kinds=["order", "mismatch", "not_entered"]) if drawn else None
    )


def _without(s: Simulation, programs: Programs, rank: int, i: int, kinds: list[str]) -> Placed:
    steps = s.programs[rank]
    rewrite(s, programs, rank, [*steps[:i], *steps[i + 1 :]])
    return Placed([rank], kinds, _describe(rank, steps[i]))


def extra(s: Simulation, programs: Programs, rng: random.Random, iteration: int) -> Placed | None:
    """One collective called twice."""
    drawn = _draw(s, rng, iteration, _collective)
    if not drawn:
        return None
    rank, i = drawn
    steps = s.programs[rank]
    rewrite(s, programs, rank, [*steps[: i + 1], *steps[i:]])
    return Placed([rank], ["order", "mismatch"], _describe(rank, steps[i]))


def swapped(s: Simulation, programs: Programs, rng: random.Random, iteration: int) -> Placed | None:
    """Two neighbouring operations on two groups in the wrong order."""
    rank = rng.randrange(len(s.programs))
    steps = s.programs[rank]
    places = [
        i
        for i in _places(s, rank, iteration, _recorded)
        if i + 1 < len(steps) and _recorded(steps[i + 1]) and steps[i + 1].axis != steps[i].axis
    ]
    if not places:
        return None
    i = rng.choice(places)
    rewrite(s, programs, rank, [*steps[:i], steps[i + 1], steps[i], *steps[i + 2 :]])
    kinds = ["order", "mismatch", "p2p_unmatched"]
    return Placed(
        [rank], kinds, f"{_describe(rank, steps[i])} after {steps[i + 1].op} on {steps[i + 1].axis}"
    )


def _changed(
    s: Simulation, programs: Programs, rank: int, i: int, kinds: list[str], **new: object
) -> Placed:
    steps = list(s.programs[rank])
    old, steps[i] = steps[i], dataclasses.replace(steps[i], **new)  # type: ignore[arg-type]
    rewrite(s, programs, rank, steps)
    what = ", ".join(f"{k} {getattr(old, k)} -> {v}" for k, v in new.items())
    return Placed([rank], kinds, f"{_describe(rank, old)}: {what}", changed=(rank, i, old))


def wrong_op(
    s: Simulation, programs: Programs, rng: random.Random, iteration: int
) -> Placed | None:
    drawn = _draw(s, rng, iteration, lambda step: step.op == "all_reduce")
    return _changed(s, programs, *drawn, ["mismatch"], op="reduce", root=0) if drawn else None


def wrong_shape(
    s: Simulation, programs: Programs, rng: random.Random, iteration: int
) -> Placed | None:
    drawn = _draw(s, rng, iteration, lambda step: step.op == "all_reduce")
    if not drawn:
        return None
    shape = s.programs[drawn[0]][drawn[1]].shape
    other = (*shape[:-1], shape[-1] * 2)
    return _changed(s, programs, *drawn, ["mismatch"], shape=other, out_shape=other)


def wrong_dtype(
    s: Simulation, programs: Programs, rng: random.Random, iteration: int
) -> Placed | None:
    drawn = _draw(s, rng, iteration, _collective)
    if not drawn:
        return None
    dtype = "Float" if s.programs[drawn[0]][drawn[1]].dtype != "Float" else "BFloat16"
    return _changed(s, programs, *drawn, ["mismatch"], dtype=dtype)


def wrong_reduce_op(
    s: Simulation, programs: Programs, rng: random.Random, iteration: int
) -> Placed | None:
    """NCCL picks the algorithm by reduce op too, so the two sides wait in different ones.

    No recorder keeps it.
    """
    drawn = _draw(s, rng, iteration, lambda step: step.reduce_op == "sum")
    if not drawn:
        return None
    placed = _changed(s, programs, *drawn, ["mismatch"], reduce_op="max")
    return _unseen(s, placed, *drawn)


def wrong_root(
    s: Simulation, programs: Programs, rng: random.Random, iteration: int
) -> Placed | None:
    """A broadcast from someone else. No Flight Recorder keeps the root."""
    drawn = _draw(s, rng, iteration, lambda step: step.root >= 0)
    if not drawn or s.members.layout.tp < 2:
        return None
    return _unseen(s, _changed(s, programs, *drawn, ["mismatch"], root=1), *drawn)


def _unseen(s: Simulation, placed: Placed, rank: int, i: int) -> Placed:
    """Dumps show only that all members are in it: the group is all that they can single out."""
    placed.visible = False
    placed.kinds.append("in_communication")
    placed.complete = _waiting_for(s, rank, s.programs[rank][i])
    placed.alternatives = [placed.complete]
    return placed


def wrong_group(
    s: Simulation, programs: Programs, rng: random.Random, iteration: int
) -> Placed | None:
    if "dp" not in s.members.of:
        return None
    drawn = _draw(s, rng, iteration, lambda step: step.op == "all_reduce" and step.axis == "tp")
    return (
        _changed(s, programs, *drawn, ["order", "mismatch", "not_entered"], axis="dp")
        if drawn
        else None
    )


def missing_send(
    s: Simulation, programs: Programs, rng: random.Random, iteration: int
) -> Placed | None:
    drawn = _draw(s, rng, iteration, lambda step: step.op == "send")
    return (
        _without(s, programs, *drawn, kinds=["p2p_unmatched", "order", "not_entered"])
        if drawn
        else None
    )


def missing_recv(
    s: Simulation, programs: Programs, rng: random.Random, iteration: int
) -> Placed | None:
    drawn = _draw(s, rng, iteration, lambda step: step.op == "recv")
    return (
        _without(s, programs, *drawn, kinds=["p2p_unmatched", "order", "not_entered"])
        if drawn
        else None
    )


def in_communication(
    s: Simulation, programs: Programs, rng: random.Random, iteration: int
) -> Placed | None:
    """Everyone has entered, no one leaves: link, network, GPU."""
    drawn = _draw(s, rng, iteration, _collective)
    if not drawn:
        return None
    rank, i = drawn
    step = s.programs[rank][i]
    s.stuck.add((s.members.of[step.axis][rank], step.seq))
    members = list(_waiting_for(s, rank, step))
    return Placed(
        members, ["in_communication", "device_wait"], _describe(rank, step), complete=members
    )


def two_faults(
    s: Simulation, programs: Programs, rng: random.Random, iteration: int
) -> Placed | None:
    """Two hosts stop, in two replicas, before anything that the replicas share."""
    layout = s.members.layout
    if layout.dp < 2:
        return None
    one, other = rng.sample(range(layout.dp), 2)
    ranks = range(layout.world_size)
    placed: list[Placed] = []
    for replica in (one, other):
        among = [r for r in ranks if layout.coordinates(r)["dp"] == replica]
        drawn = _draw(
            s,
            rng,
            iteration,
            lambda step: _recorded(step) and step.axis in ("tp", "pp"),
            among=among,
        )
        if not drawn:
            return None
        placed.append(_stop_host(s, *drawn))
    a, b = placed
    return Placed(
        a.ranks + b.ranks,
        [*dict.fromkeys(a.kinds + b.kinds)],
        f"{a.detail}; {b.detail}",
        holds_up=a.holds_up | b.holds_up,
        stopped=a.stopped + b.stopped,
    )


def healthy(s: Simulation, programs: Programs, rng: random.Random, iteration: int) -> Placed | None:
    return Placed([], ["healthy"], "nothing is wrong")


def slow(s: Simulation, programs: Programs, rng: random.Random, iteration: int) -> Placed | None:
    """One rank computes eight times slower: the job moves, and everyone waits for it."""
    rank = rng.randrange(len(s.programs))
    s.slowness[rank] = 8.0
    return Placed([rank], ["slow"], f"rank {rank} is 8 times slower")


def wrong_peer(
    s: Simulation, programs: Programs, rng: random.Random, iteration: int
) -> Placed | None:
    """A send to the stage after the next one, or to the one before it."""
    drawn = _draw(s, rng, iteration, lambda step: step.op == "send")
    if not drawn:
        return None
    rank, i = drawn
    hop, stage = s.programs[rank][i].hop, s.members.stage[rank]
    others = [h for h in (hop * 2, -hop) if 0 <= stage + h < s.members.layout.pp]
    if not others:
        return None
    kinds = ["p2p_unmatched", "mismatch", "order", "not_entered"]
    return _changed(s, programs, rank, i, kinds, hop=others[0])


KINDS: dict[str, Fault] = {
    f.__name__: f
    for f in (
        not_entered,
        dead,
        skipped,
        extra,
        swapped,
        wrong_op,
        wrong_shape,
        wrong_dtype,
        wrong_reduce_op,
        wrong_root,
        wrong_group,
        missing_send,
        missing_recv,
        wrong_peer,
        in_communication,
        two_faults,
        healthy,
        slow,
    )
}

# What the culprit's calls differ in, as `Cause.difference` says it. No recorder keeps roots and reductions.
DIFFERENCES = {
    "skipped": "skipped",
    "missing_send": "skipped",
    "missing_recv": "skipped",
    "extra": "added",
    "swapped": "swapped",
    "wrong_op": "operation",
    "wrong_shape": "size",
    "wrong_dtype": "type",
    "wrong_group": "group",
    "wrong_peer": "peer",
}
