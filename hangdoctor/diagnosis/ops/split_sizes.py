"""An all_to_all that all members have entered: does each expect of the others what these send to it?

Of two that disagree the records do not show which is wrong. One that disagrees with several is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ...model import splits
from ...model.operations import Operation
from ...model.splits import Splits
from .. import findings as f
from ..confidence import Ground, sure
from ..findings import Against, Clue, Finding, Why
from .facts import nodes_of, sample_of, waiters_of, where_of
from .scene import Scene
from .waits import Instance


def split_sizes_finding(
    scene: Scene, instance: Instance, records: Mapping[int, Operation]
) -> Finding | None:
    """Who sends something else than another expects; None where all that is known agrees."""
    members = sorted(scene.members(instance.key, instance.waiters[0]))
    told = {rank: splits.read(op.detail) for rank, op in records.items()}
    known = {rank: of for rank, of in told.items() if of and len(of.sends) == len(members)}
    pairs = _apart(members, known)
    if not pairs:
        return None
    ranks = _to_blame(pairs)
    rest = tuple(sorted(known.keys() - set(ranks)))
    return Finding(
        kind="mismatch",
        ranks=ranks,
        story=f.PartsApart(sample_of(scene, instance), tuple(pairs)),
        confidence=sure(Ground.PARTS_APART),
        nodes=nodes_of(scene, ranks),
        where=where_of(scene, instance, records[ranks[0]], ranks),
        waiters=waiters_of(scene, instance),
        clues=[Clue("ops", (one.sender, one.receiver), one) for one in pairs[:4]],
        against=[Against("mismatch", rest, Why.PARTS_AGREE)] if rest else [],
    )


def _apart(members: list[int], known: Mapping[int, Splits]) -> list[f.PartApart]:
    """What one sends and another expects, where they differ: those that nothing comes of first."""
    found = []
    for at, sender in enumerate(members):
        for to, receiver in enumerate(members):
            if sender not in known or receiver not in known:
                continue
            sent, expected = known[sender].sends[to], known[receiver].receives[at]
            modulus = max(known[sender].modulus, known[receiver].modulus)
            if sent != expected and not (modulus and sent % modulus == expected % modulus):
                found.append(f.PartApart(sender, receiver, sent, expected, exact=not modulus))
    return found


def _to_blame(pairs: list[f.PartApart]) -> list[int]:
    """The one rank that is in all pairs, of several; else all that are in one."""
    count = Counter(rank for one in pairs for rank in {one.sender, one.receiver})
    in_all = [rank for rank, times in count.items() if times == len(pairs)]
    return in_all if len(in_all) == 1 else sorted(count)
