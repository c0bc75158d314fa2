"""Whose the lines are of a network library, which prints node and process, by MPICH's word of the same moment,
which prints node and rank.

[n7:811:0] ib_md.c:325 UCX ERROR ibv_reg_mr(...) failed: Cannot allocate memory
MPICH ERROR [Rank 14] [job id 4711.0] [Mon Feb 15 14:58:48 2021] [unknown] [n7] - Abort(672797967)

Where MPICH names two ranks of that node, or two processes of it print such lines, nothing shows.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...model.log_facts import AnyFact, KnownError, UnreadFailure
from ...text.late import late
from .prefix import Said

# UCX's and Open MPI's, before a line
PLACE = r"^(?:\[\d{1,12}\.\d{1,9}\] )?\[(?P<node>[A-Za-z][\w.-]{0,127}):(?P<pid>\d{1,9})(?: ?:\d{1,9}){0,3}\]"
_PLACED = late(rf"{PLACE} ")
_OF_MPICH = late(
    r"^(?:(?P<task>\d{1,7}): )?(?:MPICH ERROR )?\[?Rank (?P<rank>\d{1,7})\]? (?:\[job id [^\]]{1,80}\] )?"
    r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d:]{10,20}\d{4}\] (?:\[unknown\] )?\[(?P<node>[\w.-]{1,120})\] "
)
_HEADING = late(rf"(?:{_OF_MPICH.pattern}).{{0,4}}$")  # of words in the next line
_BARE = late(r"^\s*(\d{1,5}): (?=MPI_ERR_)")  # a program's own tag, or mpirun's
_UNDER = ("Fatal error in ", "Abort(")
_LIBRARIES = ("UCX", "libfabric", "OFI", "ib_", "mlx", "cxi", "ibv_")
_BURST = 60  # lines


def placed(said: Said) -> Said:
    """With what a line of MPICH, UCX or Open MPI begins with: node, and rank or process."""
    headed = by_mpich(said)
    if headed is not None:
        return headed
    bare = _BARE.match(said.text) if max(said.rank, said.task) < 0 else None
    if bare is not None:
        return msgspec.structs.replace(said, rank=int(bare[1]))
    match = _PLACED.match(said.text) if not said.node else None
    if match is None:
        return said
    return msgspec.structs.replace(said, node=match["node"], pid=said.pid or int(match["pid"]))


def by_mpich(said: Said) -> Said | None:
    """With rank and node of the line, where MPICH begins it."""
    match = _OF_MPICH.match(said.text)
    if match is None:
        return None
    rank = said.rank if said.rank >= 0 else int(match["rank"])
    task = int(match["task"]) if match["task"] else said.task
    return msgspec.structs.replace(said, rank=rank, task=task, node=said.node or match["node"])


def started_alone(fact: KnownError, said: Said) -> Said:
    """The speaker of an error at the start of MPI: where its launcher numbers it otherwise than it does itself,
    it has not heard of the others yet, and the launcher's number is the one that tells it.
    """
    own = int(fact.values.get("rank") or said.rank)
    if fact.rule != "mpi_start" or said.task < 0 or own in (-1, said.task):
        return said
    fact.values.pop("rank", None)
    return msgspec.structs.replace(said, rank=said.task)


class Headings:
    """Of one file: who MPICH says speaks in the line below."""

    def __init__(self) -> None:
        self._who: Said | None = None

    def under(self, said: Said) -> Said:
        """The line with rank and node of the heading right above it, where it has none."""
        who, self._who = self._who, None
        if _HEADING.match(f"{said.text.rstrip()} "):
            self._who = placed(msgspec.structs.replace(said, text=f"{said.text.rstrip()} "))
        elif who is not None and said.rank < 0 and said.text.startswith(_UNDER):
            node = said.node or who.node
            return msgspec.structs.replace(said, rank=who.rank, node=node)
        return said


def name_by_node(facts: Sequence[AnyFact], beside: Sequence[AnyFact]) -> None:
    """Give a library's lines the rank that MPICH names on the same node."""
    told: dict[tuple[int, str], dict[int, int]] = {}  # (file, node) -> rank -> line
    for fact in facts:
        if isinstance(fact, KnownError) and fact.rank >= 0 and _OF_MPICH.match(fact.says):
            told.setdefault((fact.file, fact.node), {}).setdefault(fact.rank, fact.line)
    if not told:
        return
    lines = [f for f in [*facts, *beside] if _is_a_librarys(f)]
    for (file, node), ranks in told.items():
        own = [f for f in lines if (f.file, f.node) == (file, node)]
        if len(ranks) != 1 or len({f.pid for f in own}) != 1:
            continue
        [(rank, at)] = ranks.items()
        for fact in own:
            if abs(fact.line - at) <= _BURST:
                fact.rank = rank


def _is_a_librarys(fact: AnyFact) -> bool:
    known = isinstance(fact, KnownError | UnreadFailure) and fact.rank < 0 and fact.pid > 0
    return known and any(name in fact.says for name in _LIBRARIES)
