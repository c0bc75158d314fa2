"""Ranks of which nothing is known, at which waits end."""

from __future__ import annotations

from ...model import Alternative, Cause, Evidence
from .scene import Scene
from .waits import Instance
from .words import capital, instance_text, nodes_of, ranks_text, verb, waiting_text, where_of

_SMALL = 64  # members of a group that are worth comparing one by one


def needed(missed: dict[int, list[Instance]], idle: set[int]) -> list[int]:
    """The fewest silent ranks that explain all waits which end at silent ranks.

    Of the ranks that an operation lacks, one is enough to hold it up: where one of them waits for somebody itself, the
    operation is explained; where one is needed by another operation already, it explains this one too.
    """
    ends = idle & missed.keys() or set(missed)
    open_sets = [set(i.unknown) for rank in ends for i in missed[rank] if not i.absent]
    open_sets = [some for some in open_sets if some <= ends]
    found: set[int] = set()
    for some in sorted(open_sets, key=len):
        if not some & found:
            often = {r: sum(r in other for other in open_sets if not other & found) for r in some}
            found |= {r for r in some if often[r] == max(often.values())}
    return sorted(found)


def suspects_around(scene: Scene, missed: dict[int, list[Instance]]) -> list[int]:
    """Known ranks that could have kept silent ones: who waits for them, and who shares a small group with them."""
    found: set[int] = set()
    for instances in missed.values():
        for instance in instances:
            if len(instance.waiters) <= _SMALL:
                found.update(instance.waiters)
    uids = {g.uid for ops in scene.ops.values() for g in ops.groups}
    for uid in uids:
        members = scene.groups.members(uid, -1)
        if 1 < len(members) <= _SMALL and any(r in missed for r in members):
            found.update(r for r in members if scene.known(r))
    return sorted(found)


def cause_of_silence(scene: Scene, ranks: list[int], missed: dict[int, list[Instance]]) -> Cause:
    known = [i for some in (ranks, missed) for r in some for i in missed[r]]
    instance = min(known, key=lambda i: len(i.present)) if known else None
    if all(scene.lost(r) for r in ranks):
        return _beyond_records(scene, ranks, instance)
    told = [r for r in ranks if r in scene.evidence.silent]
    reasons = sorted({scene.evidence.silent[r] for r in told})
    why = "; ".join(reasons) if reasons else "it has no records"
    who = capital(ranks_text(ranks))
    waiting = ""
    if instance is not None:
        waiting = f"; {waiting_text(scene, instance).replace('in it', 'in ' + instance_text(scene, instance))}"
    summary = f"All waits end at {ranks_text(ranks)}, of which nothing is known ({why}){waiting}."
    sure = 0.7 if told else 0.5
    cause = Cause(
        "unreachable",
        ranks,
        nodes_of(scene, ranks),
        sure - 0.1 * (len(ranks) > 1),
        summary,
        where_of(scene, instance, None, ranks),
    )
    cause.evidence = [Evidence("silence", ranks, why)]
    if instance is not None:
        says = f"in {instance_text(scene, instance)}; all known members have entered it"
        cause.evidence.append(Evidence("ops", instance.waiters[:64], says))
    cause.alternatives = [
        Alternative("not_entered", ranks, f"{who} {verb(ranks, 'does', 'do')} not answer, so that where it stands is not known")
    ]
    cause.advice = "Check its node (power, network, agent); its stack or black box would tell what it does."
    return cause


def _beyond_records(scene: Scene, ranks: list[int], instance: Instance | None) -> Cause:
    """Ranks whose hosts have enqueued so much that the record of where their devices stand was overwritten."""
    who = capital(ranks_text(ranks))
    enqueued = verb(ranks, "its host has", "their hosts have")
    stands = verb(ranks, "its device stands", "the devices stand")
    summary = (
        f"All waits end at {ranks_text(ranks)}: {enqueued} enqueued all that is waited for, and the records no longer "
        f"reach back to where {stands}."
    )
    cause = Cause("in_communication", ranks, nodes_of(scene, ranks), 0.4, summary, where_of(scene, instance, None, ranks))
    cause.evidence = [Evidence("ops", ranks, "the oldest record that is left is of an operation not yet begun")]
    cause.alternatives = [Alternative("not_entered", ranks, f"{who} enqueued what the others wait in")]
    cause.advice = "Enlarge the recorder's ring (TORCH_FR_BUFFER_SIZE), so that it holds what a host enqueues ahead."
    return cause
