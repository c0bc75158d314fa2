"""An operation that every member has entered and that does not finish: do they all mean the same one?"""

from __future__ import annotations

from collections import Counter

from ...model import Alternative, Cause, Evidence
from ...operations import STORE, Operation
from .blame import blame
from .history import Divergence
from .keys import P2P_NAMES, is_p2p
from .order import cause_of_divergence
from .roles import kin, references, working_layout
from .scene import Scene
from .waits import Instance
from .words import at_site, capital, instance_text, nodes_of, op_text, ranks_text, waiting_text, where_of

# Members of these give inputs of the same shape; of all others (scatter, all_to_all, object collectives) they need not.
_EVEN_SHAPES = P2P_NAMES | {
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_single", "all_gather_into_tensor", "reduce_scatter",
    "reduce_scatter_tensor",
}  # fmt: skip
_FIELDS = ("op", "root", "reduce_op", "dtype", "shapes")
_WAY = 64  # calls that may lie between two of one kind
_COMPARED = 64  # members of a group that are compared with their like
Signature = tuple[str, str, str, str, str]


def signature(op: Operation) -> Signature:
    """What members must agree on; "" where it is not recorded or may differ. A send and a receive are one operation."""
    name = "p2p" if op.op in P2P_NAMES else op.op
    root = "" if op.root < 0 or op.op in P2P_NAMES else str(op.root)
    return (name, root, op.reduce_op, op.dtype, op.shapes if op.op in _EVEN_SHAPES else "")


def differing(a: Signature, b: Signature) -> list[str]:
    """Fields in which both say something, and not the same."""
    return [f for f, x, y in zip(_FIELDS, a, b, strict=True) if x and y and x != y]


def cause_of_full_instance(scene: Scene, instance: Instance) -> Cause:
    """The verdict on an operation at which nobody is missing."""
    if instance.sample.op == "store_wait":
        return _unset_key(scene, instance)
    return cause_of_disagreement(scene, instance) or _in_communication(scene, instance)


def _unset_key(scene: Scene, instance: Instance) -> Cause:
    """Waits for a key of the store: who should have set it is recorded nowhere."""
    ranks = sorted(instance.waiters)
    keys = instance.sample.detail or "a key"
    cause = Cause(
        "start_stall", ranks, nodes_of(scene, ranks), 0.5,
        f"{capital(ranks_text(ranks))} wait for {keys} in the store, which nobody has set; {waiting_text(scene, instance)}.",
    )  # fmt: skip
    cause.where = where_of(scene, instance, None, ranks)
    cause.evidence = [Evidence("ops", ranks, f"in store_wait for {keys}, not finished")]
    cause.alternatives = [
        Alternative("in_communication", ranks, "a store wait is no collective: one rank sets the key that the others wait for")
    ]
    cause.advice = "Find the line that sets this key, and the rank that should have come to it."
    return cause


def cause_of_disagreement(scene: Scene, instance: Instance) -> Cause | None:
    """Who entered it with another signature than the other members, or than its like where members are unknown."""
    records = {r: scene.find(r, instance.key) for r in scene.members(instance.key, instance.waiters[0])}
    signatures = {r: signature(op) for r, op in records.items() if op is not None}
    kinds = _classes(signatures)
    if len(kinds) > 1:
        odd, sure, why = _odd_ones(scene, instance, signatures, kinds)
    elif instance.unknown and len(signatures) <= _COMPARED:
        odd, sure, why = _against_precedent(scene, instance, signatures), 0.7, "its like call it otherwise"
        if not odd:
            return None
    else:
        return None
    divergences = blame(scene, odd)
    if len(odd) == 1 and odd[0] not in divergences and (ahead := _one_ahead(scene, odd[0], instance)) is not None:
        divergences = {odd[0]: ahead}
    elif len(odd) == 1 and odd[0] in divergences and divergences[odd[0]].how == "other":
        own = scene.find(odd[0], instance.key)
        left_out = _on_its_way(scene, odd[0], own, instance) if own is not None else None
        divergences[odd[0]] = left_out or divergences[odd[0]]
    if len(odd) == 1 and odd[0] in divergences and divergences[odd[0]].how in ("skipped", "extra"):
        return cause_of_divergence(scene, divergences, [])
    return _mismatch(scene, instance, records, odd, sure, why)


def _classes(signatures: dict[int, Signature]) -> list[list[int]]:
    """Ranks by signature, the largest class first; unrecorded fields agree with anything."""
    classes: list[tuple[Signature, list[int]]] = []
    counted = Counter(signatures.values())
    order = {s: i for i, (s, _) in enumerate(counted.most_common())}
    for rank, mine in sorted(signatures.items(), key=lambda item: order[item[1]]):
        for theirs, ranks in classes:
            if not differing(mine, theirs):
                ranks.append(rank)
                break
        else:
            classes.append((mine, [rank]))
    return sorted((sorted(ranks) for _, ranks in classes), key=len, reverse=True)


def _odd_ones(
    scene: Scene, instance: Instance, signatures: dict[int, Signature], classes: list[list[int]]
) -> tuple[list[int], float, str]:
    """Ranks that differ, how sure that is, and how it was told."""
    if len(classes[0]) > len(classes[1]):
        odd = sorted(r for ranks in classes[1:] for r in ranks)
        return odd, 0.95 if len(classes[0]) > 2 else 0.9, "most members of the group agree with one another"
    everyone = sorted(signatures)
    found: dict[int, Divergence] = blame(scene, everyone)
    if found and len(found) < len(everyone):
        return sorted(found), 0.9, "its history differs from that of the ranks with the same role"
    strange = _against_precedent(scene, instance, signatures)
    if strange and len(strange) < len(everyone):
        return strange, 0.85, "the ranks with the same role in other replicas, or its own earlier calls, say otherwise"
    return everyone, 0.5, ""


def _against_precedent(scene: Scene, instance: Instance, signatures: dict[int, Signature]) -> list[int]:
    """Ranks whose signature most of their like, or they themselves before, did not use in that place."""
    records = {r: op for r in signatures if (op := scene.find(r, instance.key)) is not None}
    for voices in (_of_like, _of_other_stages, _of_last_iteration, _of_own_past):
        strange = []
        for rank, here in records.items():
            told, own = voices(scene, rank, here, set(signatures)), _relative(scene, here)
            if told and 2 * sum(bool(differing(own, v)) for v in told) > len(told):
                strange.append(rank)
        if strange and (len(strange) < len(records) or instance.unknown):
            return sorted(strange)
    return []


def _one_ahead(scene: Scene, rank: int, instance: Instance) -> Divergence | None:
    """What the rank entered is what its like enter one call later: it left one out."""
    mine = scene.find(rank, instance.key)
    if mine is None:
        return None
    own = _relative(scene, mine)
    layout = working_layout(scene)
    for other in [r for r, _ in references(scene, layout, rank, {rank})] + kin(scene, layout, rank, {rank}):
        here, following = (_corresponding(scene, rank, other, mine, later) for later in (0, 1))
        if here is None or following is None or not differing(own, _relative(scene, here)):
            continue
        if not differing(own, _relative(scene, following)):
            return Divergence(rank, other, "skipped", mine, here, len(scene.ops[rank].operations) - 1)
    return _on_its_way(scene, rank, mine, instance)


def _on_its_way(scene: Scene, rank: int, mine: Operation, instance: Instance) -> Divergence | None:
    """What the rank entered is what the members come to after the call that they wait in, each time: it left calls out."""
    other = next((r for r in sorted(instance.waiters) if r != rank), None)
    here = scene.find(other, instance.key) if other is not None else None
    if other is None or here is None or not here.site or (here.op, here.site) == (mine.op, mine.site):
        return None
    calls = [o for o in scene.ops[other].operations if o.op not in STORE and o.state == "done"]
    followed = 0
    places = [i for i, o in enumerate(calls) if (o.op, o.site) == (here.op, here.site)]
    for i, until in zip(places, [*places, len(calls)][1:], strict=True):
        followed += any((o.op, o.site) == (mine.op, mine.site) for o in calls[i + 1 : until][:_WAY])
    if followed < 2:
        return None
    return Divergence(rank, other, "skipped", mine, here, len(scene.ops[rank].operations) - 1)


def _first_other(records: dict[int, Operation | None], mine: Operation | None) -> Operation | None:
    """The first record that disagrees with `mine`."""
    return next((o for o in records.values() if o and mine and differing(signature(o), signature(mine))), None)


def _of_like(scene: Scene, rank: int, here: Operation, members: set[int]) -> list[Signature]:
    others = [r for r, _ in references(scene, working_layout(scene), rank, members) if r not in members]
    return [v for r in others if (v := _expected(scene, rank, r, here)) is not None]


def _of_other_stages(scene: Scene, rank: int, here: Operation, members: set[int]) -> list[Signature]:
    """What ranks of other stages called there; of shapes only where both stages called earlier ones alike."""
    told: list[Signature] = []
    for other in kin(scene, working_layout(scene), rank, members):
        said = _expected(scene, rank, other, here) if other not in members else None
        if said is not None:
            told.append(said if _alike_before(scene, rank, other, here) else (*said[:4], ""))
    return told


def _alike_before(scene: Scene, rank: int, other: int, here: Operation) -> bool:
    """Whether both called the same line with the same shapes before."""
    role = scene.groups.role(here.group)

    def last(some: int) -> str | None:
        for op in reversed(scene.ops[some].operations):
            if op.site == here.site and op.seq < here.seq and scene.groups.role(op.group) == role:
                return op.shapes
        return None

    mine = last(rank)
    return mine is not None and mine == last(other)


def _of_last_iteration(scene: Scene, rank: int, here: Operation, members: set[int]) -> list[Signature]:
    """The call of the same place in the iteration before."""
    mine = [o for o in scene.ops[rank].operations if o.group == here.group and o.op not in P2P_NAMES]
    now = [o for o in mine if o.iteration == here.iteration and o.seq <= here.seq]
    before = [o for o in mine if o.iteration == here.iteration - 1]
    complete = not scene.ops[rank].overwritten or (mine and mine[0].iteration < here.iteration - 1)
    if here.op in P2P_NAMES or here.iteration < 1 or not complete or len(before) < len(now) or not now:
        return []
    return [_relative(scene, before[len(now) - 1])]


def _of_own_past(scene: Scene, rank: int, here: Operation, members: set[int]) -> list[Signature]:
    """Earlier calls of the same line: of each field what it said last, where it never said what it says now."""
    past = [_relative(scene, o) for o in scene.ops[rank].operations
            if o.site == here.site and o.site and o.state == "done" and o.group == here.group]  # fmt: skip
    if len(past) < 2:
        return []
    now = _relative(scene, here)
    said = [mine if any(p[f] == mine for p in past) else past[-1][f] for f, mine in enumerate(now)]
    return [(said[0], said[1], said[2], said[3], said[4])]


def _expected(scene: Scene, rank: int, other: int, here: Operation) -> Signature | None:
    """The signature that `other` used for the operation that corresponds to `here`."""
    found = _corresponding(scene, rank, other, here, 0)
    return _relative(scene, found) if found is not None else None


def _corresponding(scene: Scene, rank: int, other: int, here: Operation, later: int) -> Operation | None:
    """What `other` did on its group of the same role under the same number, or so many `later`."""
    role = scene.groups.role(here.group)
    for op in reversed(scene.ops[other].operations):
        if op.seq != here.seq + later or (op.op in P2P_NAMES) != (here.op in P2P_NAMES):
            continue
        if op.op in P2P_NAMES and (op.op != here.op or op.peer - other != here.peer - rank):
            continue
        if scene.groups.role(op.group) == role:
            return op
    return None


def _relative(scene: Scene, op: Operation) -> Signature:
    """A signature that compares between groups: the root as a position."""
    name, root, *rest = signature(op)
    if root:
        members = scene.groups.members(op.group, op.root)
        root = str(members.index(op.root)) if op.root in members else root
    return (name, root, rest[0], rest[1], rest[2])


def _mismatch(
    scene: Scene, instance: Instance, records: dict[int, Operation | None], odd: list[int], sure: float, why: str
) -> Cause:
    mine = records[odd[0]]
    rest = [r for r, op in records.items() if op is not None and r not in odd]
    other = records[rest[0]] if rest else _first_other(records, mine)
    assert mine is not None
    fields = differing(signature(mine), signature(other)) if other is not None else []
    text = f"{_spelled(mine, fields)}" + (f", the others {_spelled(other, fields)}" if other is not None else "")
    who = capital(ranks_text(odd))
    if other is None:
        what = f"{op_text(scene, mine, odd[0])} with {_spelled(mine, list(_FIELDS[1:]))}"
        summary = f"{who} entered {what}, and {why}; {waiting_text(scene, instance)}."
    elif rest:
        if fields[:1] == ["op"] and other is not None:
            entered = f"{op_text(scene, mine, odd[0])}{at_site(mine)}, where the others entered {other.op}{at_site(other)}"
        else:
            entered = f"{op_text(scene, mine, odd[0])} with {text}"
        summary = f"{who} entered {entered}; {waiting_text(scene, instance)}."
    else:
        what = f"{instance_text(scene, instance)}: {text}"
        summary = f"{who} disagree about {what}; which of them is wrong cannot be told."
    cause = Cause("mismatch", odd, nodes_of(scene, odd), sure, summary, where_of(scene, instance, mine, odd))
    cause.evidence = [
        Evidence("ops", [r], f"{_spelled(op, list(_FIELDS))} at {op.site or 'an unrecorded line'}")
        for r, op in sorted(records.items())[:8]
        if op is not None
    ]
    if rest:
        cause.alternatives = [Alternative("mismatch", sorted(rest), why)]
    if fields[:1] == ["op"]:
        cause.advice = "Compare the two lines: one of them calls another operation there, or the rank left calls out (a branch, a swallowed exception)."
    else:
        cause.advice = f"Make all members call it with the same {' and '.join(fields) or 'arguments'}; compare the lines given."
    return cause


def _spelled(op: Operation, fields: list[str]) -> str:
    said = {"op": op.op, "root": f"root {op.root}", "reduce_op": f"reduce op {op.reduce_op}",
            "dtype": f"dtype {op.dtype}", "shapes": f"shapes {op.shapes}"}  # fmt: skip
    present = {"op": op.op, "root": op.root >= 0, "reduce_op": op.reduce_op, "dtype": op.dtype, "shapes": op.shapes}
    return ", ".join(said[f] for f in fields if present[f])


def _in_communication(scene: Scene, instance: Instance) -> Cause:
    members = sorted(scene.members(instance.key, instance.waiters[0]))
    what = instance_text(scene, instance)
    who = "both sides" if is_p2p(instance.key) else "all members"
    summary = (
        f"{capital(what)} does not finish although {who} have entered it alike: network, library, link or GPU; "
        f"{waiting_text(scene, instance)}."
    )
    sure = 0.8 if scene.evidence.earlier else 0.7
    cause = Cause("in_communication", members, nodes_of(scene, members), sure, summary)
    cause.where = where_of(scene, instance, None, members)
    cause.evidence = [Evidence("ops", members, f"all have entered {what} with one signature")]
    cause.alternatives = [Alternative("not_entered", members, "every member has entered the operation")]
    cause.advice = (
        "Look at the links and GPUs between these ranks (NCCL_DEBUG=INFO, NCCL RAS, dmesg, ibstat); "
        "a preflight of their nodes tells more."
    )
    return cause
