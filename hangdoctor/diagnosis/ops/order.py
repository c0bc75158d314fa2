"""Findings of kind `order`, `p2p_unmatched` and wrong group: a rank made other calls than ranks
with the same role.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from ...model.diagnosis import Kind
from ...model.operations import Operation
from .. import findings as f
from ..confidence import Ground, sure
from ..findings import Against, Clue, Finding, Why
from .divergence import Divergence
from .facts import nodes_of, op_of, place, waiters_of, where_of
from .keys import P2P_NAMES
from .scene import Scene
from .signatures import tag_of
from .waits import Instance

_SHOWN = 8  # pieces of evidence of one sort
_LEFT_OUT = ("skipped", "extra", "either")  # readings of one place
_LOOKED_AT = 512  # calls after the one that parts two histories


class Link(Struct):
    """One wait of a ring: the rank waits in the instance for the next one."""

    rank: int
    instance: Instance
    whom: int


def both_sides(scene: Scene, cycle: list[Link]) -> tuple[tuple[int, f.Op], ...]:
    """What each of two ranks is in, one of them in a transfer with the other; () of other rings."""
    if len(cycle) != 2 or all(link.instance.key.transfer is None for link in cycle):
        return ()
    own = [(link.rank, scene.find(link.rank, link.instance.key)) for link in cycle]
    return tuple(sorted((rank, op_of(scene, op, rank)) for rank, op in own if op is not None))


def kind_of_divergence(d: Divergence) -> Kind:
    """What kind of cause a divergence of histories is."""
    left_out = d.theirs if d.how == "skipped" else d.mine
    if "destroy_process_group" in (d.mine.op, d.theirs.op):
        return "end_stall"
    if d.how in ("group", "other"):
        return "mismatch"
    return "p2p_unmatched" if left_out.op in P2P_NAMES else "order"


def divergence_finding(scene: Scene, found: dict[int, Divergence], cycle: list[Link]) -> Finding:
    """One finding for ranks whose calls part in the same way; `cycle`: the waits that close on
    them.
    """
    ranks = sorted(found)
    found = {rank: _left_out_if_awaited(scene, d) for rank, d in found.items()}
    first = found[ranks[0]]
    kind = kind_of_divergence(first)
    held = next((link.instance for link in cycle if ranks[0] == link.whom), None)
    parted = [found[rank] for rank in ranks[:_SHOWN]]
    finding = Finding(
        kind=kind,
        ranks=ranks,
        story=_story(scene, first),
        confidence=sure(_ground(first)),
        nodes=nodes_of(scene, ranks),
        where=where_of(scene, held, None if held else first.mine, ranks),
        waiters=waiters_of(scene, held),
        clues=[_parted(scene, d) for d in parted],
    )
    finding.clues += [link_clue(scene, link) for link in cycle[:_SHOWN]]
    innocent = sorted({link.rank for link in cycle} - set(ranks))
    if innocent:
        finding.against = [Against(kind, tuple(innocent), _why_not(first))]
    return place(scene, finding)


def _left_out_if_awaited(scene: Scene, d: Divergence) -> Divergence:
    """A send or receive that another rank waits for was left out, where what the rank did in its
    place comes later in the other's history, too.
    """
    if d.how != "other" or d.theirs.op not in P2P_NAMES or d.before_records:
        return d
    if not (_comes_later(scene, d) or len(_unanswered(scene, d.rank)) > 1):
        return d
    due = _sides(scene, d)[1]
    partner = scene.ops.get(due.peer) if due.peer is not None else None
    awaited = partner is not None and any(
        op.op in P2P_NAMES and op.op != due.name and (op.peer, op.seq) == (d.rank, due.seq)
        for op in partner.unfinished()
    )
    return structs.replace(d, how="skipped", fewer=True) if awaited else d


def was_not_due(scene: Scene, d: Divergence) -> bool:
    """Whether another member made the call that the rank is said to have left out after the one to
    which it went on: then that call was not due yet, and who did make it there has other partners.
    """
    if d.how not in _LEFT_OUT or d.before_records or {d.theirs.op, d.mine.op} & P2P_NAMES:
        return False
    due = _sides(scene, structs.replace(d, how="skipped"))[1]
    due_of, mine_of = set(due.group.ranks), set(scene.groups.members(d.mine.group, d.rank))
    if due_of == mine_of:
        return False  # one group, in which the numbers are the order
    others = due_of & mine_of & scene.ops.keys() - {d.rank}
    return any(_made_later(scene, rank, due, d.mine) for rank in others)


def _made_later(scene: Scene, rank: int, due: f.Op, than: Operation) -> bool:
    """Whether the records of a rank have the call `due` behind that one."""
    operations = scene.ops[rank].operations
    at = next((at for at, op in enumerate(operations) if _is_same(op, than)), len(operations))
    return any(
        (op.op, op.seq) == (due.name, due.seq)
        and set(scene.groups.members(op.group, rank)) == set(due.group.ranks)
        for op in operations[at:]
    )


def _unanswered(scene: Scene, rank: int) -> set[int]:
    """Other ranks that are in a transfer with this one, of which it has not made its half."""
    own = {(o.op, o.peer, o.seq) for o in scene.ops[rank].operations if o.op in P2P_NAMES}
    half = {"send": "recv", "recv": "send"}
    peers = {peer for _, peer, _ in own} & scene.ops.keys()
    return {
        peer
        for peer in peers
        for o in scene.ops[peer].unfinished()
        if o.peer == rank and o.op in half and (half[o.op], peer, o.seq) not in own
    }


def _comes_later(scene: Scene, d: Divergence) -> bool:
    """Whether the other rank made the call that this one is at, under the same number, after the
    one that parts them.
    """
    mine = d.mine
    if mine.op not in P2P_NAMES or mine.state != "done":
        return False  # one that its partner did not take may be with the wrong rank
    own = _calls_from(scene, d.rank, mine)
    other = _calls_from(scene, d.reference, d.theirs)
    if len(own) < 2 or len(other) < 2 or own[1][:2] == other[1][:2]:
        return False  # what follows is the same: one call with another rank in its place
    return own[0] in other[1:]


def _calls_from(scene: Scene, rank: int, op: Operation) -> list[tuple[str, int, int]]:
    """Names, hops to the other rank and numbers of a rank's transfers from this one on; the hop of
    others is 0.
    """
    groups, operations = scene.groups, scene.ops[rank].operations
    later = [o for o in operations if o.entered_s >= op.entered_s]
    begin = next((at for at, o in enumerate(later) if _is_same(o, op)), len(later))
    return [
        (o.op, groups.hop(o.group, rank, o.peer) if o.op in P2P_NAMES else 0, o.seq)
        for o in later[begin : begin + _LOOKED_AT]
    ]


def _is_same(one: Operation, other: Operation) -> bool:
    return (one.op, one.group, one.peer, one.seq) == (other.op, other.group, other.peer, other.seq)


def _why_not(d: Divergence) -> Why:
    """Why the ranks beside it are not at fault."""
    if d.how == "own":
        return Why.SAME_AS_ROUNDS_BEFORE
    return Why.SAME_AS_LINE if d.reference == d.rank else Why.SAME_AS_ROLE


def _ground(d: Divergence) -> Ground:
    if d.how == "own":
        return Ground.HISTORY_OWN
    return Ground.HISTORY_BEFORE_RECORDS if d.before_records else Ground.HISTORY


def _sides(scene: Scene, d: Divergence) -> tuple[f.Op, f.Op]:
    mine, theirs = op_of(scene, d.mine, d.rank), op_of(scene, d.theirs, d.reference)
    if d.how in ("skipped", "swapped", "other"):
        theirs = _in_place_of(scene, d, d.theirs, theirs)
    return mine, theirs


def _in_place_of(scene: Scene, d: Divergence, op: Operation, theirs: f.Op) -> f.Op:
    """The call of the other rank as this one should have made it: in its own group of that kind."""
    groups = scene.groups
    if d.rank in groups.members(op.group, d.reference):
        own = op.group
    else:
        role = groups.role(op.group)
        alike = [uid for uid in groups.of_rank(d.rank) if groups.role(uid) == role]
        if len(alike) != 1:
            return theirs
        own = alike[0]
    peer = theirs.peer
    if peer is not None and peer >= 0:
        members = groups.members(own, d.rank)
        hop = groups.hop(op.group, d.reference, op.peer)
        peer = d.rank + hop if isinstance(members, range) else _at(members, d.rank, hop)
    return structs.replace(theirs, group=groups.ref(own), peer=peer)


def _at(members: Sequence[int], rank: int, hop: int) -> int | None:
    """The member so far on from `rank`."""
    place = members.index(rank) + hop
    return members[place] if 0 <= place < len(members) else None


def _story(scene: Scene, d: Divergence) -> f.Diverged:
    mine, theirs = _sides(scene, d)
    before, again = d.before_records, d.again
    tags = _tags(d) if not before else ()
    return f.Diverged(
        d.how,
        mine,
        theirs,
        d.reference,
        before_records=before,
        again=again,
        tags=tags,
        fewer=d.fewer,
    )


def _tags(d: Divergence) -> tuple[str, ...]:
    """Of two transfers by one number at one line; () where these are alike, or are none."""
    mine, theirs = d.mine, d.theirs
    one = mine.op in P2P_NAMES and (mine.op, mine.seq, mine.site) == (
        theirs.op,
        theirs.seq,
        theirs.site,
    )
    tags = tag_of(mine), tag_of(theirs)
    return tags if one and mine.site and all(tags) and tags[0] != tags[1] else ()


def _parted(scene: Scene, d: Divergence) -> Clue:
    # As the other rank made it, with its own peer: the sentence says it in this rank's terms.
    mine, theirs = op_of(scene, d.mine, d.rank), op_of(scene, d.theirs, d.reference)
    fact = f.PartedAt(d.position, mine, theirs, d.reference, own=d.how == "own")
    return Clue("ops", (d.rank,), fact)


def link_clue(scene: Scene, link: Link) -> Clue:
    """One wait of a ring as evidence."""
    op = scene.find(link.rank, link.instance.key) or link.instance.sample
    return Clue("ops", (link.rank,), f.WaitsFor(op_of(scene, op, link.rank), link.whom))
