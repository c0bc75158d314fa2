"""Faults put into a training program, each with the kinds that a right verdict may give it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hangdoctor.diagnosis.findings import End
from hangdoctor.diagnosis.ops import OpsEvidence
from hangdoctor.model.layout import Layout
from tests.support.ops_programs import Call, Job, training, variant


@dataclass
class Case:
    """A job with a fault in it: who did it, and what it may be called."""

    job: Job
    culprits: set[int]
    kinds: set[str]
    marks: dict[str, object] = field(
        default_factory=dict
    )  # fields of the evidence that other sources fill

    def evidence(self, ring: int = 10_000, named: bool = True) -> OpsEvidence:
        found = self.job.run(ring, named)
        if len(self.culprits) > 1 and self.kinds == {"not_entered"}:
            self.culprits &= (
                self.job.stuck()
            )  # one may keep the other from ever coming to its fault
        for name, value in self.marks.items():
            setattr(found, name, value)
        return found


def _places(job: Job, rank: int, *ops: str, group: str = "") -> list[int]:
    """Where a rank of the job makes such calls, not in its first or last steps' very ends."""
    calls = job.rank(rank).calls
    return [
        i
        for i, c in enumerate(calls)
        if c.op in ops and (not group or c.group == group) and c.iteration >= 0
    ]


def _target(job: Job, chance: random.Random, *ops: str, group: str = "") -> tuple[int, int] | None:
    for rank in chance.sample(range(job.world), job.world):
        places = _places(job, rank, *ops, group=group)
        if places:
            return rank, chance.choice(places)
    return None


def make_case(kind: str, layout: Layout, seed: int, ahead: bool = False) -> Case | None:
    """A case, or None where this layout has no place for such a fault."""
    chance = random.Random(f"{kind} {layout} {seed}")
    job = training(
        layout, steps=3, micro=chance.choice([2, 3]), layers=chance.choice([2, 3]), ahead=ahead
    )
    return FAULTS[kind](job, chance)


def _never_enters(job: Job, chance: random.Random) -> Case | None:
    at = _target(job, chance, "all_reduce", "send", "recv", "broadcast")
    assert at is not None
    job.rank(at[0]).calls.insert(at[1], Call("stuck"))
    return Case(job, {at[0]}, {"not_entered"})


def _marked(kind: str) -> object:
    def fault(job: Job, chance: random.Random) -> Case | None:
        case = _never_enters(job, chance)
        assert case is not None
        (rank,) = case.culprits
        marks: dict[str, object] = {
            "stopped": {"stopped": {rank}},
            "dead": {"dead": {rank: End(-9)}},
        }.get(kind, {"outside": {rank: kind}})
        return Case(job, case.culprits, {kind}, marks)

    return fault


def _broken_link(job: Job, chance: random.Random) -> Case | None:
    number = chance.randrange(1, 3)
    job.broken = {("world", number)}
    return Case(job, set(range(job.world)), {"in_communication"})


def _skipped(job: Job, chance: random.Random) -> Case | None:
    at = _target(job, chance, "all_reduce", group=chance.choice(["tp", "dp", "world"])) or _target(
        job, chance, "all_reduce"
    )
    assert at is not None
    del job.rank(at[0]).calls[at[1]]
    return Case(job, {at[0]}, {"order", "mismatch", "end_stall"})


def _one_too_many(job: Job, chance: random.Random) -> Case | None:
    at = _target(job, chance, "all_reduce", group=chance.choice(["tp", "dp", "world"])) or _target(
        job, chance, "all_reduce"
    )
    assert at is not None
    calls = job.rank(at[0]).calls
    calls.insert(at[1], variant(calls[at[1]], site="extra (oops.py:7)"))
    return Case(job, {at[0]}, {"order", "mismatch", "end_stall"})


def _swapped(job: Job, chance: random.Random) -> Case | None:
    """The rank reduces over the world first and over its replicas then."""
    at = _target(job, chance, "all_reduce", group="dp")
    if at is None:
        return None
    calls = job.rank(at[0]).calls
    calls[at[1]], calls[at[1] + 1] = calls[at[1] + 1], calls[at[1]]
    return Case(job, {at[0]}, {"order", "mismatch"})


def _wrong(**fields: object) -> object:
    def fault(job: Job, chance: random.Random) -> Case | None:
        at = _target(
            job, chance, "all_reduce", group=chance.choice(["tp", "dp", "world"])
        ) or _target(job, chance, "all_reduce")
        assert at is not None
        calls = job.rank(at[0]).calls
        calls[at[1]] = variant(calls[at[1]], **fields)
        return Case(job, {at[0]}, {"mismatch"})

    return fault


def _wrong_root(job: Job, chance: random.Random) -> Case | None:
    at = _target(job, chance, "broadcast")
    if at is None:
        return None
    calls = job.rank(at[0]).calls
    calls[at[1]] = variant(calls[at[1]], root=job.members("tp", at[0])[1])
    return Case(job, {at[0]}, {"mismatch"})


def _wrong_group(job: Job, chance: random.Random) -> Case | None:
    at = _target(job, chance, "all_reduce", group="tp")
    if at is None or "dp" not in job.groups:
        return None
    calls = job.rank(at[0]).calls
    calls[at[1]] = variant(calls[at[1]], group="dp")
    return Case(job, {at[0]}, {"mismatch", "order"})


def _missing(way: str) -> object:
    def fault(job: Job, chance: random.Random) -> Case | None:
        at = _target(job, chance, way)
        if at is None:
            return None
        del job.rank(at[0]).calls[at[1]]
        return Case(job, {at[0]}, {"p2p_unmatched"})

    return fault


def _two(job: Job, chance: random.Random) -> Case | None:
    """In two replicas, each behind what the other one needs."""
    if job.layout is None or job.layout.dp < 2:
        return None
    here = chance.randrange(job.world)
    there = chance.choice(job.layout.same_role(here))
    for rank in (here, there):
        job.rank(rank).calls.insert(
            chance.choice(_places(job, rank, "all_reduce")[:2]), Call("stuck")
        )
    return Case(job, {here, there}, {"not_entered"})


def _at_start(job: Job, chance: random.Random) -> Case | None:
    rank = chance.randrange(job.world)
    job.rank(rank).calls.insert(0, Call("stuck"))
    return Case(job, {rank}, {"start_stall"})


def _at_end(job: Job, chance: random.Random) -> Case | None:
    rank = chance.randrange(job.world)
    calls = job.rank(rank).calls
    calls.insert(len(calls) - 2, Call("stuck"))
    return Case(job, {rank}, {"end_stall"})


def _left_early(job: Job, chance: random.Random) -> Case | None:
    rank = chance.randrange(job.world)
    calls = job.rank(rank).calls
    last = next(i for i, c in enumerate(calls) if c.iteration == 2)
    calls[last:] = [Call("finish")]
    return Case(job, {rank}, {"not_entered", "end_stall", "order"})


FAULTS: dict = {  # type: ignore[type-arg]
    "never enters": _never_enters,
    "stopped": _marked("stopped"),
    "dead": _marked("dead"),
    "data": _marked("data_wait"),
    "busy": _marked("busy"),
    "broken link": _broken_link,
    "skipped": _skipped,
    "one too many": _one_too_many,
    "swapped": _swapped,
    "wrong op": _wrong(op="reduce", root=0),
    "wrong shape": _wrong(shapes="[5]"),
    "wrong dtype": _wrong(dtype="float16"),
    "wrong reduce op": _wrong(reduce_op="MAX"),
    "wrong root": _wrong_root,
    "wrong group": _wrong_group,
    "missing send": _missing("send"),
    "missing recv": _missing("recv"),
    "two": _two,
    "at start": _at_start,
    "at end": _at_end,
    "left early": _left_early,
}


def kernel_fault(layout: Layout, seed: int) -> Case:
    """A kernel that never finishes, ahead of an operation that the host has enqueued."""
    chance = random.Random(f"kernel {layout} {seed}")
    job = training(layout, ahead=True)
    at = _target(job, chance, "all_reduce")
    assert at is not None
    job.rank(at[0]).calls.insert(at[1], Call("kernel"))
    return Case(job, {at[0]}, {"device_wait"})
