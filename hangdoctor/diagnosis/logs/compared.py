"""What a check of operations printed: torch's (TORCH_DISTRIBUTED_DEBUG=DETAIL), DDP's, Accelerate's.

torch's compares lengths of records first, and prints a length as if it were a record: one without
shapes, with number 0, whose operation is not what the rank runs. It goes through the ranks in their
order and prints the first that differs: those before it have what the speaker has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...model.log_facts import Mismatch
from ..confidence import Ground
from ..findings import Op
from ..findings.log_stories import OtherCall
from .by_torch import named_first
from .candidate import First
from .scene import Scene, op_name

_ENOUGH = 3  # ranks that are alike, where the size of the job is unknown
_NO_TENSORS = "REDUCE"  # how torch prints 3, the length of a record without tensors
_DDP = "DDP"
_NESTED = ("{", "[", "(")  # the shapes of several tensors


class _Run(NamedTuple):
    """What one rank ran, as the check printed it."""

    op: str
    shape: str = ""
    dtype: str = ""
    seq: int = -1
    unknown: str = ""  # what is known of an operation whose name is not

    @property
    def operation(self) -> Op:
        return Op(self.unknown or op_name(self.op), self.seq)

    @property
    def size(self) -> str:
        if self.shape.endswith("params"):
            return f"with {self.shape}"
        shape = self.shape if self.shape.startswith(_NESTED) else f"[{self.shape}]"
        return f"{shape} {self.dtype}".rstrip() if self.shape else ""


def mismatch(scene: Scene) -> First | None:
    """Two ranks are compared at a time: from three on, the odd one."""
    runs = _runs(scene, scene.of(Mismatch))
    if len(runs) < 2:
        return None
    (usual, most), *rest = Counter(runs.values()).most_common()
    if not rest:
        return None
    odd = sorted(r for r, run in runs.items() if run != usual)
    pair = most * 2 <= len(runs)
    named = sorted(runs) if pair else odd
    mine = runs[named[0]]
    differs = usual if not pair else next(run for run in runs.values() if run != mine)
    story = OtherCall(
        mine.operation, differs.operation, mine.size, differs.size, pair=pair, raised=True
    )
    ground = Ground.LOG_MISMATCH_PAIR if pair else Ground.LOG_MISMATCH
    known = mine if differs.unknown else differs
    facts = sorted(scene.of(Mismatch), key=lambda fact: fact.other < 0 and fact.one not in named)
    ranks = _ranks(named, facts)
    return named_first(
        scene, "mismatch", ranks, story, ground=ground, facts=[*facts], op=known.operation
    )


def _ranks(numbers: Sequence[int], facts: Sequence[Mismatch]) -> list[int]:
    """The ranks by their numbers in the group that was checked: others than their ranks where it is
    not the whole job, as the prefixes of the lines show. [] where they do not show one of them.
    """
    said = {fact.one: fact.rank for fact in facts if fact.other >= 0 and fact.rank >= 0}
    if all(number == rank for number, rank in said.items()):
        return list(numbers)
    ranks = [said[number] for number in numbers if number in said]
    return sorted(ranks) if len(ranks) == len(numbers) else []


def _runs(scene: Scene, facts: Iterable[Mismatch]) -> dict[int, _Run]:
    """What each rank ran: by its own words, else by those of another, else as the speaker did."""
    pairs = [fact for fact in facts if fact.other >= 0]
    runs = {fact.one: _own(fact) for fact in facts}
    told = {fact.other: _others(fact) for fact in pairs}
    runs.update({rank: run for rank, run in told.items() if not run.unknown})
    size = scene.logs.world_size or 2 * _ENOUGH - 1
    for fact in pairs:
        alike = {*range(fact.other), fact.one} if fact.one_op != _DDP else {fact.one}
        most = 2 * len(alike) > max(size, fact.other + 1)
        for rank in alike if most else alike & told.keys():
            runs.setdefault(rank, _own(fact))
    for rank, run in told.items():
        runs.setdefault(rank, run)
    return runs


def _own(fact: Mismatch) -> _Run:
    return _Run(fact.one_op, fact.one_shape, fact.one_dtype, fact.seq)


def _others(fact: Mismatch) -> _Run:
    """What the speaker was told of the other rank."""
    only_length = fact.other_seq == 0 and not fact.other_shape
    if fact.other_op == fact.one_op and not fact.one_shape:
        only_length = False  # both have no tensors, so that both records have one length
    if not only_length or not (fact.one_shape or fact.seq > 0):
        return _Run(fact.other_op, fact.other_shape, fact.other_dtype, fact.other_seq)
    printed = f"printed as {fact.other_op} #0"
    what = f"an operation with other tensors ({printed})"
    if fact.other_op == _NO_TENSORS:
        what = f"an operation without tensors (such as barrier, {printed})"
    return _Run("", unknown=what)
