"""Few ranks that lost the others, which had ended: who of both made other calls than ranks of its role?"""

from __future__ import annotations

from msgspec import structs

from ...model.operations import RankOps
from ..case import Case
from ..confidence import Ground, sure
from ..findings import Clue, Diverged, EndedCleanly, Finding, LeftWithout, Waiters
from ..operations import gather
from ..ops import diagnose_ops
from ..ops.facts import nodes_of, op_of
from ..ops.keys import UNNUMBERED
from ..ops.scene import Scene
from .candidate import First


def who_parted(case: Case, found: First) -> Finding | None:
    """By the history of ranks with the same role: of those that went on and those that had ended,
    who made other calls. One that ended early may have left a call out before.
    """
    evidence, late = gather(case, []), set(found.finding.ranks)
    for rank, ops in evidence.ops.items():
        if rank in late:
            evidence.ops[rank] = as_lost(ops)
        else:
            evidence.ops[rank] = structs.replace(ops, finished=True)
    parted = [f for f in diagnose_ops(evidence).findings if isinstance(f.story, Diverged)]
    few = [f for f in parted if 2 * len(f.ranks) < max(len(case.views), 2)]
    return few[0] if few else _ended_short(Scene(evidence, set()), min(late))


def _ended_short(scene: Scene, late: int) -> Finding | None:
    """Of the members of the group in which `late` lost others, those that had ended before an
    operation which all groups of that kind have come to.
    """
    lost = scene.ops[late].operations[-1]
    role = scene.groups.role(lost.group)
    counts = {group: 0 for group in scene.groups.all() if scene.groups.role(group) == role}
    short = []
    for rank, ops in scene.ops.items():
        own = {o.group: o.seq for o in ops.operations if o.op not in UNNUMBERED}
        for group in counts.keys() & own.keys() - {lost.group}:
            counts[group] = max(counts[group], own[group])
        if own.get(lost.group, lost.seq) < lost.seq:
            short.append(rank)
    others = [count for group, count in counts.items() if group != lost.group]
    if not short or not others or min(others) < lost.seq or lost.op in UNNUMBERED:
        return None
    op = op_of(scene, lost, late)
    finding = Finding(
        kind="not_entered",
        ranks=short,
        story=LeftWithout(op),
        confidence=sure(Ground.LEFT_CLEANLY),
        nodes=nodes_of(scene, short),
        waiters=Waiters((late,), op),
        clues=[Clue("proc", tuple(short), EndedCleanly())],
    )
    finding.where.op, finding.where.seq = lost.op, lost.seq
    return finding


def as_lost(ops: RankOps) -> RankOps:
    """With the operation that it was in when it lost a connection as one that has not ended."""
    if not ops.operations or not ops.operations[-1].failed:
        return ops
    *before, last = ops.operations
    inside = structs.replace(last, state="entered", left_s=0.0, failed=False)
    return structs.replace(ops, operations=[*before, inside])
