"""What NCCL's RAS shows, in one form for its text and its JSON."""

from __future__ import annotations

import re
from collections import defaultdict

from msgspec import Struct


class RasProcess(Struct, frozen=True):
    """A process that RAS speaks of."""

    host: str = ""
    pid: int = 0
    gpu: str = ""


class RasRank(Struct):
    """One rank of one communicator.

    `launched` counts operations by torch's names, where it is known.
    """

    rank: int
    process: RasProcess = RasProcess()
    launched: dict[str, int] = {}
    state: str = "running"  # or init, finalize, abort, nocomm, missing, unresponsive, dead, error
    error: str = ""


class RasCounts(Struct):
    """Ranks that have launched equally many of one operation, while others have launched more or
    fewer.
    """

    op: str  # "" before NCCL 2.26, which counts all operations together
    launched: int
    number: int  # of ranks
    ranks: list[int] = []  # those that are named


class RasCommunicator(Struct):
    """One communicator, by the hash that NCCL prints."""

    hash: str
    size: int = 0  # 0 if unknown
    ranks: list[RasRank] = []  # those that are named
    missing: list[RasRank] = []
    differences: list[RasCounts] = []
    problems: list[str] = []  # INCOMPLETE, ERROR, MISMATCH


class RasReport(Struct):
    """One answer of RAS."""

    version: str = ""
    communicators: list[RasCommunicator] = []
    dead: list[RasProcess] = []  # given up by RAS
    silent: list[RasProcess] = []  # did not answer this time
    timeouts: int = 0
    form: str = "text"
    largest: int = (
        0  # communicator of its table, ranks; of those without fault nothing else is said
    )
    gpus: int = 0  # of the whole job, by its summary; 0 where it has none
    at_s: float = 0.0  # when it was taken, seconds since the epoch; 0 where it is not known
    notes: list[str] = []

    def name_once(self) -> None:
        """Each process once, however many communicators it is missing in; what is dead is not
        silent, too.
        """
        self.dead = list(dict.fromkeys(self.dead))
        dead = set(self.dead)
        self.silent = [p for p in dict.fromkeys(self.silent) if p not in dead]


_NAMES = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
}


def op_name(name: str) -> str:
    """NCCL's name of an operation -> torch.distributed's."""
    return _NAMES.get(name, re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower())


def about_another(error: str) -> bool:
    """Whether an error that a rank reports is about another process: text, or number 6 in JSON."""
    return "remote" in error.lower() or error.endswith("async_error 6")


def differences(ranks: list[RasRank]) -> list[RasCounts]:
    """Operations that the ranks of a communicator have launched unequally often, the most ranks
    first.
    """
    out: list[RasCounts] = []
    for op in dict.fromkeys(op for r in ranks for op in r.launched):
        by_count: dict[int, list[int]] = defaultdict(list)
        for r in ranks:
            by_count[r.launched.get(op, 0)].append(r.rank)
        if len(by_count) > 1:
            rows = sorted(by_count.items(), key=lambda item: (-len(item[1]), item[0]))
            out += [RasCounts(op, launched, len(who), who) for launched, who in rows]
    return out
