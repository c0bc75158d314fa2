"""Ranks without any information, at which waits end."""

from __future__ import annotations

from .. import findings as f
from ..confidence import Ground, Less, lowered, sure
from ..findings import Against, Clue, Finding, Why
from .facts import in_op, nodes_of, waiters_of, where_of
from .scene import Scene
from .waits import Instance

_SMALL = 64  # members of a group that are worth comparing one by one


def needed(missed: dict[int, list[Instance]], idle: set[int]) -> list[int]:
    """The fewest silent ranks that explain all waits which end at silent ranks.

    Of the ranks that an operation lacks, one is enough to block it: where one of them waits for
    another rank itself, the operation is explained; where one is needed by another operation
    already, it explains this one too.
    """
    ends = idle & missed.keys() or set(missed)
    lacking = [set(i.unknown) for rank in ends for i in missed[rank] if not i.absent]
    open_sets = [ranks for ranks in lacking if ranks <= ends]
    found: set[int] = set()
    for ranks in sorted(open_sets, key=len):
        if not ranks & found:
            unexplained = [other for other in open_sets if not other & found]
            found |= _most_often(ranks, unexplained)
    return sorted(found)


def _most_often(ranks: set[int], sets: list[set[int]]) -> set[int]:
    """Of these ranks, those that are in the most of the sets."""
    often = {rank: sum(rank in some for some in sets) for rank in ranks}
    most = max(often.values(), default=0)
    return {rank for rank in ranks if often[rank] == most}


def one_may_wait_for_another(scene: Scene, ranks: list[int]) -> bool:
    """Whether waits end at several ranks without a dump, and the dumps of the others keep no
    history: which of them came how far, and so which of them waits for another, does not show.
    """
    return len(ranks) > 1 and any(ops.only_active for ops in scene.ops.values())


def suspects_around(scene: Scene, missed: dict[int, list[Instance]]) -> list[int]:
    """Ranks that silent ones could wait for: who waits for them, and who shares a small group with
    them; and of those without a place those that have records of what they have called.
    """
    found = {rank for rank in missed if scene.lost(rank)}
    around = [instance for instances in missed.values() for instance in instances]
    for instance in around:
        if len(instance.waiters) <= _SMALL:
            found.update(instance.waiters)
    uids = {g.uid for ops in scene.ops.values() for g in ops.groups}
    for uid in uids:
        members = scene.groups.members(uid, -1)
        if 1 < len(members) <= _SMALL and not missed.keys().isdisjoint(members):
            found.update(r for r in members if scene.known(r))
    return sorted(found)


def silence_finding(scene: Scene, ranks: list[int], missed: dict[int, list[Instance]]) -> Finding:
    """All waits end at these ranks, and nothing shows where they are."""
    around = [i for some in (ranks, missed) for r in some for i in missed[r]]
    instance = min(around, key=lambda i: len(i.present), default=None)
    whys = tuple(sorted({scene.evidence.silent[r] for r in ranks if r in scene.evidence.silent}))
    finding = Finding(
        kind="unreachable",
        ranks=ranks,
        story=f.NotSeen(whys),
        confidence=_confidence(scene, ranks),
        nodes=nodes_of(scene, ranks),
        where=where_of(scene, instance, None, ranks),
        waiters=waiters_of(scene, instance),
        clues=[Clue("silence", tuple(ranks), f.Silence(whys))],
        against=[Against("not_entered", tuple(ranks), Why.NOT_ANSWERING)],
    )
    if instance is not None:
        waiting = tuple(instance.waiters[:_SMALL])
        entered = in_op(scene, instance, everyone=not instance.absent)
        finding.clues.append(Clue("ops", waiting, entered))
    return finding


def _confidence(scene: Scene, ranks: list[int]) -> float:
    if not any(r in scene.evidence.silent for r in ranks):
        ground = Ground.WITHOUT_RECORDS
    elif scene.evidence.earlier:
        ground = Ground.NOT_ANSWERING
    else:
        ground = Ground.NOT_ANSWERING_ONCE
    return lowered(sure(ground), Less.SEVERAL_SILENT) if len(ranks) > 1 else sure(ground)
