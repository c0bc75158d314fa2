"""Ranks of which nothing is known, at which waits end."""

from __future__ import annotations

from ...model import Alternative, Cause, Evidence
from .scene import Scene
from .waits import Instance
from .words import capital, instance_text, nodes_of, ranks_text, verb, waiting_text, where_of


_SMALL = 64  # members of a group that are worth comparing one by one


def suspects_around(scene: Scene, missed: dict[int, list[Instance]]) -> list[int]:
    """Known ranks that could have kept silent ones waiting: who waits for them, and who shares a small group with them."""
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
    instance = min((i for some in (ranks, missed) for r in some for i in missed[r]), key=lambda i: len(i.present))
    told = [r for r in ranks if r in scene.evidence.silent]
    reasons = sorted({scene.evidence.silent[r] for r in told})
    why = "; ".join(reasons) if reasons else "it has no records"
    who = capital(ranks_text(ranks))
    summary = f"All waits end at {ranks_text(ranks)}, of which nothing is known ({why}); {waiting_text(scene, instance).replace('in it', 'in ' + instance_text(scene, instance))}."
    sure = 0.7 if told else 0.5
    cause = Cause("unreachable", ranks, nodes_of(scene, ranks), sure - 0.1 * (len(ranks) > 1), summary, where_of(scene, instance, None, ranks))
    cause.evidence = [
        Evidence("silence", ranks, why),
        Evidence("ops", instance.waiters[:64], f"in {instance_text(scene, instance)}; all known members have entered it"),
    ]
    cause.alternatives = [Alternative("not_entered", ranks, f"{who} {verb(ranks, 'does', 'do')} not answer, so that where it stands is not known")]
    cause.advice = "Check its node (power, network, agent); its stack or black box would tell what it does."
    return cause
