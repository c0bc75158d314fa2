"""An operation that every member has entered and that does not finish: do they all mean the same
one?
"""

from __future__ import annotations

from msgspec import Struct, structs

from ...model.operations import Operation
from .. import findings as f
from ..confidence import Ground, sure
from ..findings import Against, Clue, DecidedBy, Disagrees, Finding, Op, Why
from .blame import blame, confirmed
from .divergence import Divergence
from .facts import in_op, nodes_of, op_of, other_side, sample_of, waiters_of, where_of
from .new_call import made_a_new_call
from .order import divergence_finding
from .own_groups import own_groups_finding
from .partners import one_of_pair
from .precedent import against_precedent, changed_tag, on_its_way, one_ahead
from .same_line import on_other_group
from .scene import Scene
from .signatures import (
    Signature,
    classes_of,
    differing,
    signature,
    spelled,
    spelled_signature,
    tag_of,
)
from .split_sizes import split_sizes_finding
from .unset_key import unset_key_finding
from .waits import Instance

_COMPARED = 64  # members of a group that are compared with ranks of the same role
_SHOWN = 8  # members whose signatures are evidence
_WHY = {
    DecidedBy.MAJORITY: Why.AGREE_MAJORITY,
    DecidedBy.ROLE: Why.AGREE_ROLE,
    DecidedBy.PRECEDENT: Why.AGREE_PRECEDENT,
    DecidedBy.NEW_CALL: Why.AGREE_USUAL,
    DecidedBy.UNDECIDED: Why.AGREE_UNDECIDED,
}
Records = dict[int, Operation]  # of the members that have one


class Odd(Struct):
    """Ranks that differ, how sure that is, and how it was found."""

    ranks: list[int]
    ground: Ground
    decided_by: DecidedBy
    usual: Signature | None = None  # of the first, by precedent: what calls like it said


def full_instance_finding(scene: Scene, instance: Instance) -> Finding:
    """The verdict on an operation at which no rank is missing."""
    if instance.sample.op == "store_wait":
        return unset_key_finding(scene, instance)
    records = _records_of(scene, instance)
    return (
        disagreement_finding(scene, instance)
        or own_groups_finding(scene, instance, records)
        or split_sizes_finding(scene, instance, records)
        or _in_communication(scene, instance)
    )


def disagreement_finding(scene: Scene, instance: Instance) -> Finding | None:
    """Who entered it with another signature than the other members, or than ranks of its role where
    members are unknown.
    """
    records = _records_of(scene, instance)
    changed = changed_tag(scene, records) if _differ_in_tag(records) else []
    if changed:  # no call was left out: the same calls were made with the usual tag before
        odd = Odd(changed, Ground.SIGNATURE_PRECEDENT, DecidedBy.PRECEDENT)
        return _mismatch(scene, instance, records, odd)
    records = _with_roots(records)
    odd = _odd_ones(scene, instance, records)
    if not odd.ranks or _other_order(scene, records):
        return None
    if odd.decided_by is DecidedBy.UNDECIDED and instance.key.transfer is not None:
        by_partners = one_of_pair(scene, instance, sorted(records))
        if by_partners is not None:
            return by_partners
    if len(odd.ranks) == 1:
        only = _divergence(scene, instance, odd.ranks[0], records[odd.ranks[0]])
        if only is not None and only.how in ("skipped", "extra", "either", "swapped", "group"):
            return divergence_finding(scene, {only.rank: only}, [])
    return _mismatch(scene, instance, records, odd)


def _records_of(scene: Scene, instance: Instance) -> Records:
    members = scene.members(instance.key, instance.waiters[0])
    found = {r: scene.find(r, instance.key) for r in members}
    return {r: op for r, op in found.items() if op is not None}


def _with_roots(records: Records) -> Records:
    """Those whose root is known, where these differ in it; else all."""
    told = {rank: op for rank, op in records.items() if op.root >= 0}
    return told if len({op.root for op in told.values()}) > 1 else records


def _other_order(scene: Scene, records: Records) -> bool:
    """Whether the two sides of a transfer differ in their tags alone, and one of them has the other's
    tag pending too: transfers with tags may be called in another order than their counterparts.
    """
    if not _differ_in_tag(records):
        return False
    one, other = records.items()
    return any(_has_pending(scene, *own, theirs[1]) for own, theirs in ((one, other), (other, one)))


def _differ_in_tag(records: Records) -> bool:
    """Whether these are the two sides of a transfer, and alike but for their tags."""
    if len(records) != 2:
        return False
    one, other = map(signature, records.values())
    return differing(one, other) == ["tag"]


def _has_pending(scene: Scene, rank: int, own: Operation, theirs: Operation) -> bool:
    """Whether a rank has another transfer of this kind pending, with the tag of the counterpart."""
    pending = scene.ops[rank].unfinished() if rank in scene.ops else []
    same = [o for o in pending if (o.op, o.peer, o.group) == (own.op, own.peer, own.group)]
    return any(tag_of(o) == tag_of(theirs) for o in same)


def _divergence(scene: Scene, instance: Instance, rank: int, own: Operation) -> Divergence | None:
    """Where the history of the one rank that differs parts from those of its role: it may have left
    a call out.
    """
    elsewhere = on_other_group(scene, rank)
    if elsewhere is not None and elsewhere.mine is own:
        return elsewhere
    found = blame(scene, [rank]).get(rank)
    if found is None:
        return one_ahead(scene, rank, instance)
    if found.how != "other" or _left_before(scene, found):
        return found
    return on_its_way(scene, rank, own, instance) or found


def _left_before(scene: Scene, d: Divergence) -> bool:
    """Whether it made a call from a line where the other rank has never been: what came after may
    be calls too many as well as calls left out.
    """
    one_call = (d.mine.op, d.mine.group) == (d.theirs.op, d.theirs.group)
    if not d.mine.site or not one_call:
        return False
    calls = {(op.op, op.site) for op in scene.ops[d.reference].operations}
    return (d.mine.op, d.mine.site) not in calls


def _odd_ones(scene: Scene, instance: Instance, records: Records) -> Odd:
    """The members that differ; none where all agree, or nothing can be compared."""
    signatures = {r: signature(op) for r, op in records.items()}
    classes = classes_of(signatures)
    if len(classes) > 1:
        return _of_two_sides(scene, instance, signatures, classes)
    if instance.unknown and len(signatures) <= _COMPARED:
        strange = against_precedent(scene, instance, signatures)
        return _by_precedent(strange, Ground.SIGNATURE_PARTLY)
    return Odd([], Ground.SIGNATURE_OPEN, DecidedBy.UNDECIDED)


def _by_precedent(strange: dict[int, Signature], ground: Ground) -> Odd:
    usual = next(iter(strange.values()), None)
    return Odd(list(strange), ground, DecidedBy.PRECEDENT, usual)


def _of_two_sides(
    scene: Scene, instance: Instance, signatures: dict[int, Signature], classes: list[list[int]]
) -> Odd:
    largest, second = classes[:2]
    if len(largest) > len(second):
        odd = sorted(r for ranks in classes[1:] for r in ranks)
        ground = Ground.SIGNATURE_MAJORITY if len(largest) > 2 else Ground.SIGNATURE_PAIR
        left = made_a_new_call(scene, instance, classes) == odd
        return Odd(odd, ground, DecidedBy.NEW_CALL if left else DecidedBy.MAJORITY)
    everyone = sorted(signatures)
    found = blame(scene, everyone)
    if found and len(found) < len(everyone):
        return Odd(sorted(found), Ground.SIGNATURE_ROLE, DecidedBy.ROLE)
    sure = confirmed(scene, everyone) if _at_two_lines(scene, instance, everyone) else set()
    if sure and set(everyone) - sure in map(set, classes):
        return Odd(sorted(set(everyone) - sure), Ground.SIGNATURE_ROLE, DecidedBy.ROLE)
    strange = against_precedent(scene, instance, signatures)
    if strange and len(strange) < len(everyone):
        return _by_precedent(strange, Ground.SIGNATURE_PRECEDENT)
    new = made_a_new_call(scene, instance, classes)
    if new:
        return Odd(new, Ground.SIGNATURE_NEW, DecidedBy.NEW_CALL)
    return Odd(everyone, Ground.SIGNATURE_OPEN, DecidedBy.UNDECIDED)


def _at_two_lines(scene: Scene, instance: Instance, ranks: list[int]) -> bool:
    """Two lines under one number: the sides are at two places of the program, not in two calls."""
    records = [scene.find(rank, instance.key) for rank in ranks]
    lines = {op.site for op in records if op is not None}
    return len(lines) > 1 and "" not in lines


def _mismatch(scene: Scene, instance: Instance, records: Records, odd: Odd) -> Finding:
    first = odd.ranks[0]
    mine = records[first]
    rest = [r for r in records if r not in odd.ranks]
    other = _first_other([records[r] for r in rest or records], mine)
    against = Against("mismatch", tuple(sorted(rest)), _WHY[odd.decided_by])
    return Finding(
        kind="mismatch",
        ranks=odd.ranks,
        story=_story(
            own=op_of(scene, mine, first),
            mine=mine,
            theirs=op_of(scene, other, instance.waiters[0]) if other is not None else None,
            other=other,
            odd=odd,
            sides=() if rest or other is None else _by_side(records, mine, other),
        ),
        confidence=sure(odd.ground),
        nodes=nodes_of(scene, odd.ranks),
        where=where_of(scene, instance, mine, odd.ranks),
        waiters=waiters_of(scene, instance),
        clues=_signed(records),
        against=[against] if rest else [],
    )


def _by_side(records: Records, mine: Operation, other: Operation) -> tuple[tuple[int, ...], ...]:
    """The ranks that agree with the one, and with the other."""
    return tuple(
        tuple(r for r, op in sorted(records.items()) if not differing(signature(op), side))
        for side in (signature(mine), signature(other))
    )


def _story(
    own: Op,
    mine: Operation,
    theirs: Op | None,
    other: Operation | None,
    *,
    odd: Odd,
    sides: tuple[tuple[int, ...], ...],
) -> Disagrees:
    usual = signature(other) if other is not None else odd.usual
    fields = tuple(differing(signature(mine), usual)) if usual is not None else ()
    their_values: tuple[str, ...] = ()
    if other is not None:
        their_values = spelled(other, fields)
    elif usual is not None:
        their_values = spelled_signature(usual, fields)
    return Disagrees(
        mine=own,
        theirs=theirs,
        fields=fields,
        my_values=spelled(mine, fields) if fields else spelled(mine)[1:],
        their_values=their_values,
        ground=odd.decided_by,
        sides=sides,
    )


def _signed(records: Records) -> list[Clue]:
    first = sorted(records)[:_SHOWN]
    return [Clue("ops", (r,), f.Signed(spelled(records[r]), records[r].site)) for r in first]


def _first_other(records: list[Operation], mine: Operation) -> Operation | None:
    """The first record that disagrees with `mine`."""
    own = signature(mine)
    return next((op for op in records if differing(signature(op), own)), None)


def _in_communication(scene: Scene, instance: Instance) -> Finding:
    members = sorted(scene.members(instance.key, instance.waiters[0]))
    op = sample_of(scene, instance)
    # The members that an older box's new_group asks for are not recorded: nothing was compared.
    compared = instance.sample.op != "new_group" or bool(instance.sample.detail)
    entered = f.SameSignature(op) if compared else in_op(scene, instance, everyone=True)
    if len(members) == 1 and scene.ops[members[0]].runs_ahead:
        return _only_member(scene, instance, members[0], entered)
    past = _past(scene, instance)
    if past:
        return _held_behind(scene, instance, past, entered)
    return Finding(
        kind="in_communication",
        ranks=members,
        story=f.AllIn(
            op,
            tuple(members),
            counted=True,
            sides=instance.key.transfer is not None,
            other=other_side(scene, instance),
            one_tag=all(map(tag_of, _records_of(scene, instance).values())),
        ),
        confidence=sure(_all_entered(scene, instance)),
        nodes=nodes_of(scene, members),
        where=where_of(scene, instance, None, members),
        waiters=waiters_of(scene, instance),
        clues=[Clue("ops", tuple(members), entered)],
        against=[Against("not_entered", tuple(members), Why.ALL_ENTERED)],
    )


def _only_member(scene: Scene, instance: Instance, rank: int, entered: f.Fact) -> Finding:
    """A group of one rank has no other rank to wait for: what is left is its device."""
    return Finding(
        kind="device_wait",
        ranks=[rank],
        story=f.WaitsForDevice(op=sample_of(scene, instance)),
        confidence=sure(Ground.ONLY_MEMBER),
        nodes=nodes_of(scene, [rank]),
        where=where_of(scene, instance, None, [rank]),
        waiters=waiters_of(scene, instance),
        clues=[Clue("ops", (rank,), entered)],
    )


def _past(scene: Scene, instance: Instance) -> list[int]:
    """Members that have completed a collective in which the hosts of others are stuck: data comes to some
    before all have it. What devices have completed is told by `device_wait`.
    """
    if instance.key.transfer is not None or any(scene.ops[r].runs_ahead for r in instance.waiters):
        return []
    records = _records_of(scene, instance)
    return sorted(r for r, op in records.items() if op.state == "done" and not op.failed)


def _held_behind(scene: Scene, instance: Instance, past: list[int], entered: f.Fact) -> Finding:
    stuck, everyone = sorted(instance.waiters), tuple(sorted({*instance.waiters, *past}))
    return Finding(
        kind="in_communication",
        ranks=stuck,
        story=f.HeldBehind(sample_of(scene, instance), tuple(past)),
        confidence=sure(_all_entered(scene, instance)),
        nodes=nodes_of(scene, stuck),
        where=where_of(scene, instance, None, stuck),
        waiters=waiters_of(scene, instance),
        clues=[Clue("ops", everyone, entered)],
        against=[Against("not_entered", everyone, Why.ALL_ENTERED)],
    )


def in_all_transfers(scene: Scene, found: list[Finding]) -> list[Finding]:
    """Where several transfers that both sides entered have one rank in common, that one alone: in
    records without tags, one rank with another tag holds up all of its partners.
    """
    pairs = [c for c in found if isinstance(c.story, f.AllIn) and c.story.sides]
    common = set.intersection(*(set(c.ranks) for c in pairs)) if len(pairs) > 1 else set()
    if len(common) != 1 or not scene.evidence.earlier:  # one capture may show a job that moves
        return found
    first, ranks = pairs[0], sorted(common)
    partners = {r for c in pairs for r in c.ranks} - common
    assert isinstance(first.story, f.AllIn)
    first.kind, first.ranks, first.nodes = "p2p_unmatched", ranks, nodes_of(scene, ranks)
    first.story = structs.replace(first.story, partners=tuple(sorted(partners)))
    for other in pairs[1:]:
        first.clues += other.clues
        first.against += other.against
    return [c for c in found if c is first or c not in pairs]


def _all_entered(scene: Scene, instance: Instance) -> Ground:
    if instance.key.transfer is not None:
        return Ground.TRANSFER_BOTH_IN
    return Ground.ALL_ENTERED_TWICE if scene.evidence.earlier else Ground.ALL_ENTERED_ONCE
