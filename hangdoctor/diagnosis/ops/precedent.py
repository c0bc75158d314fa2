"""What the call of a rank should have been: by ranks with the same role, by other stages, by its
own earlier calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, pairwise, takewhile

from msgspec import structs

from ...model.operations import STORE, Operation
from .divergence import Divergence
from .group_members import Role
from .keys import P2P_NAMES
from .roles import kin, references
from .scene import Scene
from .signatures import Signature, differing, signature, tag_of
from .waits import Instance

Voices = Callable[[Scene, int, Operation, set[int]], list[Signature]]

_LONGEST_ROUND = 256  # tags
_WAY = 64  # calls that may lie between two of one kind
_ENOUGH = 2  # calls of one line, to say what it usually calls
_VOICES = 256  # other pending calls that are asked


def against_precedent(
    scene: Scene, instance: Instance, signatures: dict[int, Signature]
) -> dict[int, Signature]:
    """Ranks whose signature most ranks with the same role, or they themselves before, did not use in that
    place; each with one that these used.
    """
    records = {r: op for r in signatures if (op := scene.find(r, instance.key)) is not None}
    members = set(signatures)
    every: list[Voices] = [_of_like, _of_other_stages, _of_last_iteration, _of_own_past, _of_line]
    if len(set(signatures.values())) > 1:
        # Other calls show which of two sides is usual, not that a call which all agree on is wrong.
        every += [_of_pending, _of_other_links]
    for voices in every:
        strange: dict[int, Signature] = {}
        for rank, here in sorted(records.items()):
            own = _relative(scene, here)
            said = voices(scene, rank, here, members)
            against = [voice for voice in said if differing(own, voice)]
            if 2 * len(against) > len(said):
                strange[rank] = against[0]
        if strange and (len(strange) < len(records) or instance.unknown):
            return strange
    return {}


def one_ahead(scene: Scene, rank: int, instance: Instance) -> Divergence | None:
    """What the rank entered is what ranks with the same role enter one call later: it skipped one."""
    mine = scene.find(rank, instance.key)
    if mine is None:
        return None
    own = _relative(scene, mine)
    for other in references(scene, rank, {rank}) + kin(scene, rank, {rank}):
        here = _corresponding(scene, rank, other, mine, later=0)
        following = _corresponding(scene, rank, other, mine, later=1)
        if here is None or following is None:
            continue
        differs_here = differing(own, _relative(scene, here))
        if differs_here and not differing(own, _relative(scene, following)):
            return _left_out(scene, rank, other, mine, theirs=here)
    return on_its_way(scene, rank, mine, instance)


def _left_out(
    scene: Scene, rank: int, other: int, mine: Operation, theirs: Operation
) -> Divergence:
    position = len(scene.ops[rank].operations) - 1
    return Divergence(rank, other, "skipped", mine, theirs=theirs, position=position)


def _made_again(parted: Divergence) -> Divergence:
    """The same where it may as well be one call too many."""
    return structs.replace(parted, how="either", again=True)


Call = tuple[str, str]  # operation and line


def on_its_way(scene: Scene, rank: int, mine: Operation, instance: Instance) -> Divergence | None:
    """What the rank entered is what the members come to after the call that they wait in, each
    time: it left calls out. Where it entered just that before, as no other rank has done, it made it
    once more, or left all between the two out.
    """
    other = next((r for r in sorted(instance.waiters) if r != rank), None)
    if other is None or mine.op in P2P_NAMES:  # the two sides of a transfer are two calls
        return None
    here = scene.find(other, instance.key)
    if here is None or not here.site or _call(here) == _call(mine):
        return None
    calls = [o for o in scene.ops[other].operations if o.op not in STORE and o.state == "done"]
    made = [_call(o) for o in calls]
    if _times_followed(made, _call(here), _call(mine)) < 2:
        return None
    parted = _left_out(scene, rank, other, mine, theirs=here)
    twice = (_call(mine), _call(mine))
    repeated = twice not in pairwise(made) and _follows_itself(scene, rank, mine)
    return _made_again(parted) if repeated else parted


def _follows_itself(scene: Scene, rank: int, mine: Operation) -> bool:
    """Whether the call that the rank made just before is the same, of the same group."""
    calls = [o for o in scene.ops[rank].operations if o.op not in STORE]
    before = next((a for a, b in pairwise(calls) if b is mine), None)
    if before is None or not mine.site:
        return False
    return (_call(before), before.group) == (_call(mine), mine.group)


def _times_followed(calls: list[Call], here: Call, later: Call) -> int:
    """After how many calls `here` the call `later` comes soon, and before `here` comes again."""
    places = [i for i, call in enumerate(calls) if call == here]
    ways = [calls[i + 1 : until][:_WAY] for i, until in pairwise([*places, len(calls)])]
    return sum(later in way for way in ways)


def _call(op: Operation) -> Call:
    return (op.op, op.site)


def _of_like(scene: Scene, rank: int, here: Operation, members: set[int]) -> list[Signature]:
    others = [other for other in references(scene, rank, members) if other not in members]
    voices = [_expected(scene, rank, other, here) for other in others]
    return [voice for voice in voices if voice is not None]


def _of_other_stages(
    scene: Scene, rank: int, here: Operation, members: set[int]
) -> list[Signature]:
    """What ranks of other stages called there; of shapes only where both stages called earlier ones
    alike.
    """
    voices: list[Signature] = []
    for other in kin(scene, rank, members):
        voice = _expected(scene, rank, other, here) if other not in members else None
        if voice is not None:
            alike = _alike_before(scene, rank, other, here)
            voices.append(voice if alike else (*voice[:4], "", *voice[5:]))
    return voices


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


def _of_last_iteration(
    scene: Scene, rank: int, here: Operation, members: set[int]
) -> list[Signature]:
    """The call of the same place in the iteration before."""
    if here.op in P2P_NAMES or here.iteration < 1:
        return []
    ops, last = scene.ops[rank], here.iteration - 1
    mine = [o for o in ops.operations if o.group == here.group and o.op not in P2P_NAMES]
    reach_back = bool(mine) and mine[0].iteration < last
    if ops.overwritten and not reach_back:
        return []  # the records may begin within the iteration before
    now = sum(o.iteration == here.iteration and o.seq <= here.seq for o in mine)
    before = [o for o in mine if o.iteration == last]
    return [_relative(scene, before[now - 1])] if 0 < now <= len(before) else []


def _of_own_past(scene: Scene, rank: int, here: Operation, members: set[int]) -> list[Signature]:
    """Earlier calls of the same line: of each field what it said last, where it never said what it
    says now.
    """
    if not here.site:
        return []
    past = [_relative(scene, o) for o in _before(scene, rank, here)]
    if len(past) < 2:
        return []
    now = _relative(scene, here)
    said = [
        mine if any(earlier[field] == mine for earlier in past) else past[-1][field]
        for field, mine in enumerate(now)
    ]
    # Tags often count steps: one that was always the same says something, a new one alone does not.
    tag = said[-1] if len({earlier[-1] for earlier in past}) == 1 else ""
    return [(said[0], said[1], said[2], said[3], said[4], said[5], tag)]


def _before(scene: Scene, rank: int, here: Operation) -> list[Operation]:
    """The calls of the same line that ended before `here` began: an isend is done at once, whatever
    becomes of what it sends.
    """
    operations = scene.ops[rank].operations
    earlier = list(takewhile(lambda o: o is not here, operations))
    done = (o for o in earlier if o.state == "done")
    return [o for o in done if o.site == here.site and o.group == here.group]


def changed_tag(scene: Scene, records: dict[int, Operation]) -> list[int]:
    """The side of a transfer whose line has another tag than each time before, where the other
    side's has the one that it always had, or that one where most other ranks have changed theirs,
    too; [] where tags count something, or both are as before.
    """
    usual = {rank: _usual_tag(scene, rank, op) for rank, op in records.items()}
    changed = [rank for rank, op in records.items() if usual[rank] not in ("", tag_of(op))]
    kept = [rank for rank, op in records.items() if usual[rank] == tag_of(op)]
    if len(changed) != 1 or len(kept) != 1:
        return []
    return kept if _others_changed(scene, records) else changed


def _others_changed(scene: Scene, records: dict[int, Operation]) -> bool:
    """Whether most transfers of this number that other ranks make at these lines have another tag
    than before.
    """
    sites = {op.site for op in records.values()}
    numbers = {op.seq for op in records.values()}
    alike = [
        (rank, op)
        for rank, ops in scene.ops.items()
        if rank not in records
        for op in ops.operations
        if op.op in P2P_NAMES and op.seq in numbers and op.site in sites
    ]
    usual = [(_usual_tag(scene, rank, op), tag_of(op)) for rank, op in alike[:_VOICES]]
    known = [(before, now) for before, now in usual if before]
    return 2 * sum(before != now for before, now in known) > len(known)


def _usual_tag(scene: Scene, rank: int, here: Operation) -> str:
    """The tag that the line had in all earlier transfers with this peer, or has next in the round of
    tags that it went through again and again; "" without one.
    """
    if not here.site:
        return ""
    tags = [tag_of(o) for o in _before(scene, rank, here) if o.peer == here.peer]
    for period in range(1, min(len(tags) // 2, _LONGEST_ROUND) + 1):
        if all(tag == before for tag, before in zip(tags[period:], tags, strict=False)):
            return tags[-period] if len(tags) >= _ENOUGH else ""
    return ""


def _of_other_links(scene: Scene, rank: int, here: Operation, members: set[int]) -> list[Signature]:
    """Which of the two tags of a transfer those of the same number between other ranks have: tags
    often count steps.
    """
    if not tag_of(here):
        return []
    mine: set[str] = set()
    elsewhere: set[str] = set()
    for other, ops in scene.ops.items():
        alike = [op for op in ops.operations if _is_like(op, here)]
        if other in members:
            mine.update(tag_of(op) for op in alike if op.peer in members)
        else:
            elsewhere.update(map(tag_of, alike))
    return [("", "", "", "", "", "", tag) for tag in sorted(mine & elsewhere)]


def _is_like(op: Operation, here: Operation) -> bool:
    """Whether it is a transfer of the same number in the same group."""
    return op.op in P2P_NAMES and (op.seq, op.group) == (here.seq, here.group) and bool(tag_of(op))


def _of_line(scene: Scene, rank: int, here: Operation, members: set[int]) -> list[Signature]:
    """The operation that the line calls on all other ranks; sizes and types may be others each time."""
    if not scene.ops[rank].only_active or not here.site:
        return []
    others = islice(_other_calls(scene, here, scene.groups.role(here.group)), _VOICES)
    calls = [o.op for o in others if o.site == here.site]
    if len(calls) < _ENOUGH or len(set(calls)) > 1:
        return []
    return [(calls[0], "", "", "", "", "", "")]


def _of_pending(scene: Scene, rank: int, here: Operation, members: set[int]) -> list[Signature]:
    """Where nothing but pending calls is recorded: what others of the same role's groups say, those
    of the same line first; of all lines only fields in which all of them agree.
    """
    if not scene.ops[rank].only_active:
        return []
    role = scene.groups.role(here.group)
    others = list(islice(_other_calls(scene, here, role), _VOICES))
    same_line = [o for o in others if o.site == here.site and o.site]
    if same_line:
        return [_relative(scene, o) for o in same_line]
    columns = list(zip(*(_relative(scene, o) for o in others), strict=True))
    if not columns:
        return []
    agreed = [values[0] if len(set(values)) == 1 else "" for values in columns]
    return [(agreed[0], agreed[1], agreed[2], agreed[3], agreed[4], agreed[5], "")]


def _other_calls(scene: Scene, here: Operation, role: Role) -> Iterator[Operation]:
    """Collectives on groups of this role, of any rank, except those of this place."""
    for ops in scene.ops.values():
        for op in ops.operations:
            collective = op.op not in P2P_NAMES and op.op not in STORE
            if collective and op.seq != here.seq and scene.groups.role(op.group) == role:
                yield op


def _expected(scene: Scene, rank: int, other: int, here: Operation) -> Signature | None:
    """The signature that `other` used for the operation that corresponds to `here`."""
    found = _corresponding(scene, rank, other, here, later=0)
    # A tag may be a rank's own.
    return (*_relative(scene, found)[:-1], "") if found is not None else None


def _corresponding(
    scene: Scene, rank: int, other: int, here: Operation, later: int
) -> Operation | None:
    """What `other` did on its group of the same role under the same number, or so many `later`."""
    role = scene.groups.role(here.group)
    transfer = here.op in P2P_NAMES
    hop = _hop(scene, rank, here)
    for op in reversed(scene.ops[other].operations):
        if op.seq != here.seq + later or (op.op in P2P_NAMES) != transfer:
            continue
        if transfer and (op.op != here.op or _hop(scene, other, op) != hop):
            continue
        if scene.groups.role(op.group) == role:
            return op
    return None


def _hop(scene: Scene, rank: int, op: Operation) -> int:
    return scene.groups.hop(op.group, rank, op.peer)


def _relative(scene: Scene, op: Operation) -> Signature:
    """A signature that compares between groups: the root as a position."""
    name, root, *_ = own = signature(op)
    if root:
        members = scene.groups.members(op.group, op.root)
        root = str(members.index(op.root)) if op.root in members else root
    return (name, root, *own[2:])
