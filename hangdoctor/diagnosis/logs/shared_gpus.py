"""Ranks that share a GPU, which NCCL finds when they set up a communicator: all that it names."""

from __future__ import annotations

from collections.abc import Sequence

from ...model.log_facts import AnyFact, GpuShared, RuleText
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_devices import SharedGpu, SharedGpus
from .candidate import First
from .scene import Scene

RULE = "nccl_duplicate_gpu"


def shared_gpus(scene: Scene, text: RuleText, alike: Sequence[AnyFact]) -> First | None:
    """Every rank of every pair; None where no line names two ranks."""
    facts = scene.of(GpuShared)
    if not facts:
        return None
    sides = _joined([_of_pair(scene, fact) for fact in facts])
    ranks = sorted({rank for side in sides for rank in side.ranks})
    finding = Finding(
        kind="error",
        ranks=ranks,
        story=SharedGpus(tuple(sides), text.advice),
        confidence=sure(Ground.LOG_ERROR),
        nodes=sorted({side.node for side in sides} - {""}),
    )
    return First(finding, [*facts, *alike], bool(ranks))


def _of_pair(scene: Scene, fact: GpuShared) -> SharedGpu:
    """The two ranks; the speaker alone where the numbers are those of a smaller group than the job."""
    pair = {fact.one, fact.other}
    ranks = pair if fact.rank < 0 or fact.rank in pair else {fact.rank}
    homes = {fact.node, *scene.nodes(ranks)} - {"", "localhost"}
    return SharedGpu(tuple(sorted(ranks)), fact.gpu, homes.pop() if len(homes) == 1 else "")


def _joined(pairs: Sequence[SharedGpu]) -> list[SharedGpu]:
    """One for each GPU: pairs that have a rank in common, or the node."""
    sides: list[SharedGpu] = []
    for pair in pairs:
        same = [side for side in sides if _is_same(side, pair)]
        ranks = {*pair.ranks, *(rank for side in same for rank in side.ranks)}
        node = pair.node or next((side.node for side in same if side.node), "")
        sides = [side for side in sides if side not in same]
        sides.append(SharedGpu(tuple(sorted(ranks)), pair.gpu, node))
    return sorted(sides, key=lambda side: side.ranks)


def _is_same(one: SharedGpu, other: SharedGpu) -> bool:
    common = bool(set(one.ranks) & set(other.ranks))
    return one.gpu == other.gpu and (common or one.node == other.node != "")
