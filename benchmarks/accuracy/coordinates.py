"""Which faults the real job is given, where each of them may strike, and what a diagnosis should
then say.

A seed draws rank, step and place. The truth is stated for each kind of evidence: dumps hold no
stacks, so that of a rank that sleeps they can only tell that it did not enter; gloo's dumps hold
neither roots nor sends and receives.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from .score import Expected

WORLD = 8
MODES = ("stacks only", "black box", "dumps only")
# A job as it is: stacks, and what torch's own recorder holds.
UNPREPARED = "nothing prepared"

_MICRO = [f"{name}.{mb}" for name in ("forward", "backward") for mb in range(4)]
_SEND, _RECEIVE = [f"send.{mb}" for mb in range(4)], [f"receive.{mb}" for mb in range(4)]
_WORLDWIDE = ["norm", "loss"]
# In the 2x2x2 grid: the bit of a rank in which it differs from its partner, by the beginning of the
# place.
_PEER_BITS = {1: ("forward", "backward", "batch"), 4: ("send", "receive", "share")}
_ANYWHERE = [
    *_MICRO,
    *_SEND,
    *_RECEIVE,
    "data",
    "batch",
    "grad",
    "params",
    "share",
    *_WORLDWIDE,
    "checkpoint",
    "evaluate",
]
_REPLICA = [*_MICRO, *_SEND, *_RECEIVE]  # before anything that the replicas share
_COUNTED = [*_MICRO, "batch", "grad", "params", "share", *_WORLDWIDE]
# Faults that stacks alone can pin on two ranks only: one left a call out, or the other made one of
# its own.
_EITHER = set(
    "exception_swallowed skipped one_too_many wrong_operation wrong_root missing_send missing_receive".split()
)
# Faults that leave a rank outside of everything that gloo's recorder keeps: its neighbour stage, which
# may have made no transfer or wait in one, leaves the same records (`real_twins.py`).
_OUTSIDE = set(
    """sleep infinite_loop blocked_read lock full_queue loader_worker_dead loader_worker_stuck
    checkpoint_fifo fork_with_lock gil_held uninterruptible missing_send missing_receive two_faults
    """.split()
)
_BEYOND = [
    "order",
    "mismatch",
    "p2p_unmatched",
    "not_entered",
]  # names for calls that do not fit the program


@dataclass(frozen=True)
class Kind:
    """One kind of fault: its places, and the names under which it may be reported."""

    places: list[str]
    kinds: list[str]
    hang: bool = True
    ranks: list[int] = field(default_factory=lambda: list(range(WORLD)))
    moving: bool = False  # the faulty rank does not come to rest
    unseen_in_dumps: bool = False  # gloo's dumps do not hold the field that is wrong


KINDS: dict[str, Kind] = {
    "sleep": Kind(_ANYWHERE, ["not_entered"]),
    "infinite_loop": Kind(_ANYWHERE, ["busy", "not_entered"], moving=True),
    "blocked_read": Kind(_ANYWHERE, ["not_entered"]),
    "lock": Kind(_ANYWHERE, ["not_entered"]),
    "full_queue": Kind(_ANYWHERE, ["not_entered"]),
    "loader_worker_dead": Kind(["data"], ["data_wait"]),
    "loader_worker_stuck": Kind(["data"], ["data_wait"]),
    "checkpoint_fifo": Kind(["checkpoint"], ["checkpoint_wait"], ranks=[0, 1, 4, 5]),
    "exception_swallowed": Kind(_MICRO, _BEYOND),
    "early_exit": Kind(_ANYWHERE, ["dead", "end_stall", "not_entered", "order"]),
    "stopped": Kind(_ANYWHERE, ["stopped"]),
    "killed": Kind(_ANYWHERE, ["dead"]),
    "skipped": Kind(_COUNTED, _BEYOND),
    "one_too_many": Kind(_COUNTED, _BEYOND),
    "swapped": Kind(["grad", "loss"], ["order", "mismatch"]),
    "wrong_operation": Kind([*_MICRO, "grad", "norm"], ["mismatch", "order"]),
    "wrong_shape": Kind(
        [*_MICRO, "grad"], ["mismatch", "dead"]
    ),  # gloo ends the process that gets more than it expects
    "wrong_dtype": Kind([*_MICRO, "grad"], ["mismatch", "dead"]),
    "wrong_root": Kind(["batch", "share"], ["mismatch"], unseen_in_dumps=True),
    "wrong_group": Kind([*_MICRO, "norm"], [*_BEYOND, "dead"]),
    "missing_send": Kind(_SEND, ["p2p_unmatched", "order", "not_entered"]),
    "missing_receive": Kind(_RECEIVE, ["p2p_unmatched", "order", "not_entered"]),
    "fork_with_lock": Kind(_ANYWHERE, ["interpreter_lock"]),
    "gil_held": Kind(_ANYWHERE, ["interpreter_lock"]),
    "uninterruptible": Kind(_ANYWHERE, ["io_wait"]),
    "late_at_rendezvous": Kind(["rendezvous"], ["start_stall"]),
    "never_started": Kind(["rendezvous"], ["start_stall", "dead", "unreachable"]),
    "stuck_in_destroy": Kind(
        ["destroy"], ["end_stall", "p2p_unmatched", "order"], ranks=list(range(1, WORLD))
    ),
    "two_faults": Kind(_REPLICA, ["not_entered", "p2p_unmatched"]),
    "slow_rank": Kind(["forward", "backward"], ["slow"], hang=False, moving=True),
    "long_evaluation": Kind(["evaluate"], ["slow"], hang=False, moving=True),
    "long_checkpoint": Kind(["checkpoint"], ["slow"], hang=False, moving=True),
    "healthy": Kind(["data"], [], hang=False, moving=True),
    "finished": Kind(["destroy"], [], hang=False),
}


@dataclass(frozen=True)
class Case:
    """One job with its fault."""

    kind: str
    seed: int
    faults: list[dict[str, object]]

    @property
    def ranks(self) -> list[int]:
        """The culprits."""
        return sorted({int(str(f["rank"])) for f in self.faults})

    @property
    def place(self) -> str:
        """Where the fault is, for people."""
        return "; ".join(f"rank {f['rank']}, step {f['step']}, {f['where']}" for f in self.faults)

    def expected(self, mode: str) -> Expected:
        """What a right verdict may say, by the evidence that `mode` leaves."""
        spec = KINDS[self.kind]
        if not spec.hang:
            slow = [] if self.kind in ("finished", "healthy") else self.ranks
            if mode == "dumps only" and self.kind in ("long_evaluation", "long_checkpoint"):
                return self._as_if_it_hung(slow)
            return Expected([], spec.kinds, hang=False, innocent_if_slow=slow)
        kinds = list(spec.kinds)
        if any(str(f["where"]).startswith(("send", "receive")) for f in self.faults):
            kinds.append("p2p_unmatched")
        if mode == "dumps only":
            return self._by_dumps(kinds)
        wider: list[int] = []
        if mode.startswith("stacks") and self.kind in _EITHER:
            wider = sorted({*self.ranks, *_partners(self)})
        return Expected(self.ranks, list(dict.fromkeys(kinds)), wider=wider)

    def _as_if_it_hung(self, slow: list[int]) -> Expected:
        """A rank that evaluates for long leaves the records of one that sleeps there."""
        return Expected(
            [],
            ["slow", "not_entered"],
            hang=False,
            innocent_if_slow=slow,
            undecidable=True,
            between=self._pipeline(),
        )

    def _pipeline(self) -> list[int]:
        """The culprits and their neighbour stages."""
        return sorted({rank ^ stage for rank in self.ranks for stage in (0, 4)})

    def _by_dumps(self, kinds: list[str]) -> Expected:
        kinds = [*kinds, "not_entered", "unreachable"]
        if self.kind == "stuck_in_destroy":
            kinds.append("end_stall")
        alternatives: list[list[int]] = []
        if KINDS[self.kind].unseen_in_dumps:
            kinds.append("in_communication")
            alternatives = [_members(self)]
        # No transfer is recorded: a rank and its neighbour stage look alike.
        wider = set(self._pipeline())
        outside = self.kind in _OUTSIDE
        if self.kind in ("killed", "early_exit"):
            wider = {rank ^ half for rank in wider for half in (0, 1)}
        return Expected(
            self.ranks,
            list(dict.fromkeys(kinds)),
            alternatives=alternatives,
            wider=sorted(wider),
            undecidable=outside,
            between=self._pipeline() if outside else [],
            nothing_shown=str(self.faults[0]["where"]) in ("rendezvous", "destroy"),
        )


def _partners(case: Case) -> list[int]:
    """The other member of each group of two that a call at the place may be made on."""
    rank = case.ranks[0]
    where = str(case.faults[0]["where"])
    if where in _WORLDWIDE:
        return []
    for bit, points in _PEER_BITS.items():
        if where.startswith(points):
            return [rank ^ bit]
    return [rank ^ 2]


def _members(case: Case) -> list[int]:
    """The group that a call with a wrong root is made on: all that evidence without roots can
    single out.
    """
    rank = case.ranks[0]
    return (
        sorted([rank, rank ^ 1]) if case.faults[0]["where"] == "batch" else sorted([rank, rank ^ 4])
    )


def draw(kind: str, seed: int) -> Case:
    """The same for the same kind and seed."""
    rng = random.Random(f"{kind}/{seed}")
    spec = KINDS[kind]
    rank = rng.choice(spec.ranks)
    if kind == "two_faults":
        # One rank of each replica: rank bit 1 is the replica (TP2 is bit 0, the stage bit 2).
        first = rng.choice([r for r in range(WORLD) if not r & 2])
        second = rng.choice([r for r in range(WORLD) if r & 2])
        step = rng.randint(1, 4)
        pairs = [
            (rng.choice(["sleep", "blocked_read", "lock"]), r, rng.choice(spec.places))
            for r in (first, second)
        ]
        return Case(
            kind, seed, [{"kind": k, "rank": r, "step": step, "where": w} for k, r, w in pairs]
        )
    where = rng.choice(spec.places)
    step = rng.randint(1, 4)
    if where in ("rendezvous", "destroy"):
        step = -1
    return Case(kind, seed, [{"kind": kind, "rank": rank, "step": step, "where": where}])
