"""torch's recorders of living ranks that nobody prepared, read from their memory.

The records have each collective's number in its group, which stacks do not show: who skipped one, made
one too many, or another. They are read of all ranks of a node or of none, and only where no rank has a
black box, whose numbers count otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.capture import RankCapture
from ..model.layout import Layout
from ..text.ranges import format_ranks
from ..time_limit import in_time
from . import blocking_wait, flight_recorder
from .flight_recorder import FolderResult
from .flight_recorder_format import Dump
from .rank_operations import KEEP, KEEP_BEFORE, trim
from .recorder_beside import are_told
from .recorder_memory import read_recorder

# Its end at one rank does not show that all others have come.
_WITH_ROOT = frozenset({"broadcast", "reduce", "scatter", "gather"})
_WORKERS = 2  # decoding is work of the interpreter: more would only wait for one another


def attach(
    ranks: Sequence[RankCapture], first: bool, seconds: float, layout: Layout | None = None
) -> list[str]:
    """Put what their recorders hold on the ranks of one node; what was not read, as notes.

    `first`: of two samples. `layout`: of the job, where it is known.
    """
    if any((rank.ops_before if first else rank.ops) is not None for rank in ranks):
        return []
    living = [rank for rank in ranks if rank.pid and not rank.gone and _may_be_read(rank)]
    # All at both samples: which groups there are, and what each is called, follows from all records.
    read, _ = in_time(living, lambda rank: read_recorder(rank.pid, KEEP), _WORKERS, seconds)
    dumps = {living[place].rank: dump for place, dump in read.items() if dump is not None}
    for rank in living:
        if rank.rank in dumps and blocking_wait.is_on(rank.pid):
            blocking_wait.settle(dumps[rank.rank])
    if len(read) == len(living) and dumps:
        _put(ranks, dumps, first, layout)
    if len(read) == len(living) or first:
        return []
    # One that is left out would seem to have made no call: then none is taken.
    late = [rank.rank for place, rank in enumerate(living) if place not in read]
    return [f"torch's recorders of ranks {format_ranks(late)} were not read in {seconds:.1f} s"]


def _may_be_read(rank: RankCapture) -> bool:
    """Not with a thread in uninterruptible I/O: its memory may be locked, and the reader with it."""
    sample = rank.samples[-1] if rank.samples else None
    return sample is None or not any(t.state == "D" for t in sample.threads)


def _unsure(found: FolderResult) -> set[str]:
    """Groups of which it is not known who is in them.

    gloo's recorder shows a group only where it was used. Once all members have come to an operation
    of it, all show it; before, one that never does would not be missed.
    """
    used = {
        op.group
        for ops in found.ops.values()
        for op in ops.operations
        if op.state == "done" and op.op not in _WITH_ROOT
    }
    return set(found.unsure - used)


def _put(
    ranks: Sequence[RankCapture], dumps: dict[int, Dump], first: bool, layout: Layout | None
) -> None:
    world = max(rank.world_size for rank in ranks)
    found = flight_recorder.convert(dumps, layout, world_size=world)
    here = len(ranks) == found.world_size  # who has no records is known, by its process
    if not here and not all(are_told(ops) for ops in found.ops.values()):
        return  # members that were guessed from the records of a few ranks are not those of the job
    unsure = _unsure(found)
    for rank in ranks:
        ops = found.ops.get(rank.rank)
        if ops is None:
            continue
        ops.unsure = sorted(unsure.intersection(group.uid for group in ops.groups))
        if first:
            rank.ops_before = trim(ops, KEEP_BEFORE)
        else:
            rank.ops = trim(ops, KEEP)
