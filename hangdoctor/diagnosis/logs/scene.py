"""The facts of the attempt that is judged, by kind, and who is known to have been there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct

from ...model.log_facts import (
    AnyFact,
    Ended,
    GlooTimeout,
    Guarded,
    JobLogs,
    KilledByLauncher,
    OwnLine,
    PythonError,
    TimedOut,
    Unanswered,
    UnreadFailure,
)
from ..findings import Op
from ..findings.log_stories import Quote, Source

LIMITS = ("gloo_timeout", "store_timeout")  # rules of errors: a wait reached its limit
WAITS = (*LIMITS, "peer_closed")  # or lost another rank
NCCL_WARNED = "nccl_warned"  # a rule: it knows the form of the line, and not its words
HCCL_WAIT = "hccl_wait"  # a rank waited for others in HCCL
_LIMITED = (TimedOut, GlooTimeout, Guarded, Unanswered)  # waits that reached a limit
_JAX_BARRIER = "jax_barrier"  # a rule
T = TypeVar("T", bound=AnyFact)
_NAMES = {
    "DDP": "DistributedDataParallel",
    "ALLREDUCE": "all_reduce",
    "ALLREDUCE_COALESCED": "all_reduce",
    "BROADCAST": "broadcast",
    "_BROADCAST_OOP": "broadcast",
    "REDUCE": "reduce",
    "ALLGATHER": "all_gather",
    "_ALLGATHER_BASE": "all_gather_into_tensor",
    "ALLGATHER_COALESCED": "all_gather",
    "REDUCE_SCATTER": "reduce_scatter",
    "_REDUCE_SCATTER_BASE": "reduce_scatter_tensor",
    "GATHER": "gather",
    "SCATTER": "scatter",
    "ALLTOALL": "all_to_all",
    "ALLTOALL_BASE": "all_to_all_single",
    "BARRIER": "barrier",
    "SEND": "send",
    "RECV": "recv",
}


class Scene(Struct):
    """One attempt."""

    logs: JobLogs
    facts: list[AnyFact]  # in order
    first_wait: int  # position of the first wait that reached its limit; past the end for none
    everyone: list[int]  # ranks that are known to exist
    whole: bool  # `everyone` is the whole job
    homes: dict[int, str]
    unread: list[UnreadFailure] = []
    printed: list[OwnLine] = []

    @property
    def source(self) -> Source:
        """Where all of it is from."""
        own = set(self.logs.of_boxes)
        boxed = bool(self.facts) and all(fact.file in own for fact in self.facts)
        return "boxes" if boxed else "log"

    def by_boxes(self) -> list[AnyFact]:
        """Facts of the black boxes and exit codes: times of a log may be of another clock."""
        own = set(self.logs.of_boxes)
        return [f for f in self.facts if f.file in own]

    def of(self, kind: type[T]) -> list[T]:
        """All facts of a kind."""
        return [f for f in self.facts if isinstance(f, kind)]

    def positioned(self, *kinds: type[AnyFact]) -> list[tuple[int, AnyFact]]:
        """Facts of some kinds, with their place in the order."""
        return [(i, f) for i, f in enumerate(self.facts) if isinstance(f, kinds)]

    def nodes(self, ranks: Iterable[int]) -> list[str]:
        """Where ranks ran, as far as the logs tell."""
        return sorted({self.homes[r] for r in ranks if self.homes.get(r)})

    def places(self, ranks: Iterable[int], facts: Iterable[AnyFact]) -> list[str]:
        """Nodes of these ranks and those that these facts name."""
        return sorted({*self.nodes(ranks), *nodes_named(facts)})

    def victims(self) -> list[PythonError]:
        """Errors that another rank's end explains."""
        errors = [f for f in self.of(PythonError) if not f.survived]
        return [f for f in errors if f.role == "consequence"]

    def quote(self, fact: AnyFact, says: str | None = None) -> Quote:
        """Its line as evidence, or other words for it."""
        words = fact.says if says is None else says
        return Quote(self.logs.name_of(fact.file), fact.line, words)

    def told_to_end(self) -> set[int]:
        """Processes that the launcher ended."""
        return {f.pid for f in self.of(KilledByLauncher) if f.pid}


def is_dated(fact: AnyFact) -> bool:
    """Whether its own line has a stamp."""
    return fact.at > 0 and not fact.inherited


def ranks_named(facts: Iterable[AnyFact]) -> list[int]:
    """The ranks that these facts are of, as far as they say it."""
    return sorted({f.rank for f in facts if f.rank >= 0})


def nodes_named(facts: Iterable[AnyFact]) -> set[str]:
    """The nodes that these facts are of; a launcher's "localhost" is no name."""
    return {f.node for f in facts if f.node} - {"localhost"}


def open_scene(logs: JobLogs, attempt: int) -> Scene:
    """One attempt of the job, counted from 0."""
    facts = [f for f in logs.facts if f.attempt == attempt]
    waits = [i for i, f in enumerate(facts) if _is_limit(f)]
    everyone = _everyone(logs, facts)
    return Scene(
        logs=logs,
        facts=facts,
        first_wait=waits[0] if waits else len(facts),
        everyone=everyone,
        whole=_whole(logs, facts, everyone),
        homes={r: n for r, n in _homes(logs, facts).items() if n != "localhost"},
        unread=[f for f in logs.unread if f.attempt == attempt],
        printed=[f for f in logs.printed if f.attempt == attempt],
    )


def _is_limit(fact: AnyFact) -> bool:
    """Whether a wait reached its limit; after that of its barrier JAX aborts every process."""
    by_jax = isinstance(fact, PythonError) and fact.rule == _JAX_BARRIER
    return by_jax or isinstance(fact, _LIMITED)


def _homes(logs: JobLogs, facts: list[AnyFact]) -> dict[int, str]:
    """The node of each rank; of several jobs each has its own."""
    if logs.runs == 1:
        return logs.homes
    return {f.rank: f.node for f in facts if f.rank >= 0 and f.node}


def _everyone(logs: JobLogs, facts: list[AnyFact]) -> list[int]:
    spoke = {*ranks_named(facts), *logs.heard}
    size = logs.world_size
    return list(range(size)) if size > max(spoke, default=-1) else sorted(spoke)


def _whole(logs: JobLogs, facts: list[AnyFact], everyone: list[int]) -> bool:
    """The size was printed; or the launcher's table has every rank from 0 on."""
    if logs.world_size >= len(everyone) > 0 and logs.world_size == len(everyone):
        return True
    tabled = {f.rank for f in facts if isinstance(f, Ended) and f.rank >= 0 and f.node}
    return len(tabled) > 1 and tabled == set(range(max(tabled) + 1)) == set(everyone)


def op_name(kind: str) -> str:
    """torch's OpType as hangdoctor calls the operation."""
    return _NAMES.get(kind, kind.lower().strip("_"))


def op_of(waits: Iterable[TimedOut]) -> Op:
    """The operation that most of these waits were in."""
    every = [(w.op, w.seq) for w in waits]
    common = Counter([pair for pair in every if pair[0]] or every).most_common(1)
    (kind, seq), _ = common[0] if common else (("", -1), 0)
    return Op(op_name(kind), seq)
