"""Verdicts on the ends of the stacks' wait-for graph: an operation that all have entered, or a ring
of waits.

In a ring, some rank waits in an operation that another member is past. Who is in the minority there
made the wrong call. Where as many are past it as wait in it, nothing shows which, and both sides
are named as one set.
"""

from __future__ import annotations

from collections import Counter

from ..model.capture import Frame
from ..model.diagnosis import Kind
from ..model.layout import Layout
from ..stacks.place_search import HANDLE, TRANSFERS_BY_HANDLE
from ..stacks.root_names import NAMES_OF_ROOT
from ..stacks.user_code import is_users
from ..text.late import late
from . import findings as f
from . import other_tag, served_in_turn, stackgraph, transfer_chains, unmatched
from .case import Case, finding_on, in_op, op_of, ranks_of, sides_of, where_held
from .confidence import Ground, sure
from .findings import Against, Apart, Finding, Why
from .odd_ranks import Odd, Views
from .position import compare, counters, have_other_parts, operation_key, steps
from .stackgraph import End, Instance, StackGraph, Transfer
from .transfer_lines import sides_of_ring
from .view import RankView

_SHOWN = 8  # ranks whose operation is evidence
_NAMES_GROUP = late(r"\bgroup\s*=\s*(?!None\b|[\w.]*\bWORLD\b)")
_OF_MEGATRON = late(r"(?:^|/)megatron/")


def find(case: Case, waiting: list[RankView]) -> list[Finding] | None:
    """One finding for each end of the waits that can be read; [] where the members of operations
    are not known; None where these are, and nothing shows which side made other calls.
    """
    graph = stackgraph.build(case, waiting)
    views = {v.rank: v for v in waiting}
    found: list[Finding | None] = []
    ends = stackgraph.ends(graph)
    several = sum(_unanswered(end) for end in ends) > 1
    for end in ends:
        if not end.instances:
            continue  # a rank that waits for something without known members
        if several and _unanswered(end):
            found.append(None)  # several wait rightly for ranks that wait too, for whom is unknown
        elif not end.ranks and end.instances[0].absent:
            found.append(_apart(case, end.instances[0], views))
        elif not end.ranks:
            found.append(_full(case, end.instances[0], views))
        elif all(r in views for r in end.ranks):
            found.append(_ring(case, graph, end, views))
    decided = [finding for finding in found if finding is not None]
    return decided if decided or not found else None


def _unanswered(end: End) -> bool:
    """Whether it is a send or receive whose peer waits in something with unknown members."""
    instance = end.instances[0] if end.instances and not end.ranks else None
    return instance is not None and isinstance(instance.key, Transfer) and bool(instance.absent)


def _apart(case: Case, instance: Instance, views: Views) -> Finding | None:
    """An operation whose other members wait in something else; their stacks do not show for which
    rank. None where either side may be wrong, and both are all ranks.
    """
    here = [r for r in instance.present if r in views]
    there = [r for r in instance.absent if r in views]
    if isinstance(instance.key, Transfer) and any(unmatched.is_half(views[r]) for r in there):
        return None  # what it waits in may be the other side of this very transfer
    if isinstance(instance.key, Transfer) and len(here) == len(there) == 1:
        served = served_in_turn.find(case, views[here[0]], views[there[0]], views.values())
        if served is not None:
            return served
    all_of_many = len(here) + len(there) == case.world_size > 2
    if all_of_many and _waits_for_one_past(case, here, there, views):
        return None
    if len(here) == len(there):
        if all_of_many:
            return None
        both = Odd("order", sorted(here + there), [], Apart.NO_ORDER, ground=Ground.RING_BY_STACKS)
        return _finding(case, both, views)
    few, many = sorted((here, there), key=len)
    if all_of_many and len(few) == 1 and unmatched.is_half(views[few[0]]):
        return None  # its unknown peer is among the others, and may have left its half out
    if all(have_other_parts(views[r].path, views[many[0]].path) for r in few):
        return None
    if all_of_many and len(few) > 1 and len({operation_key(views[r]) for r in many}) > 1:
        return None  # some of the few wait for the others among them
    return _finding(
        case, Odd("order", few, many, Apart.SMALLER_SIDE, ground=Ground.FEW_ELSEWHERE), views
    )


def _waits_for_one_past(case: Case, here: list[int], there: list[int], views: Views) -> bool:
    """Whether the few wait in an operation of a smaller group, which none of the others is in, and are
    not past that of the others.

    Another member of that group has then gone past it: it left the call out, or the few made one
    too many.
    """
    if len(there) >= len(here):
        return False
    of_smaller = all(in_smaller_group(views[r]) for r in there)
    return of_smaller and not any(is_ahead(case, views[r], views[here[0]], views) for r in there)


def in_smaller_group(view: RankView) -> bool:
    """Whether its line names a group; a library passes one along where it means all ranks. A handle
    may be of a send or receive. A process whose records know only groups of all ranks is in none.
    """
    place, caller = view.place, view.place.caller
    if place.kind == "p2p":
        return place.op in TRANSFERS_BY_HANDLE and place.peer < 0
    if place.op != HANDLE and _only_whole_groups(view):
        return False
    if place.group in ("tp", "dp", "pp") or place.op == HANDLE:
        return True
    if place.group != "sub" or caller is None:
        return False
    return names_group(caller) or _OF_MEGATRON.search(caller.file) is not None


def names_group(caller: Frame | None) -> bool:
    """Whether a line of the user's gives a call its group."""
    if caller is None or not is_users(caller):
        return False
    return _NAMES_GROUP.search(caller.code) is not None


def _only_whole_groups(view: RankView) -> bool:
    ops = view.capture.ops
    if ops is None or not ops.groups or ops.world_size < 1:
        return False
    return all(len(group.ranks) == ops.world_size for group in ops.groups)


def _full(case: Case, instance: Instance, views: Views) -> Finding:
    held = [views[r] for r in instance.members]
    roots = {v.rank: root for v in held if (root := _root(v)) is not None}
    if len(set(roots.values())) > 1:
        return _different_roots(case, roots, views)
    ranks = ranks_of(held)
    story = f.AllIn(op_of(held), ranks, counted=False)
    sides = [held[:1], held[1:]] if isinstance(instance.key, Transfer) else [held]
    if len(sides) == 2:
        odd = other_tag.apart_from_all(case, held, list(views.values()))
        if odd is not None:
            return odd
        story = f.AllIn(
            op_of(sides[0]),
            ranks,
            counted=False,
            sides=True,
            other=op_of(sides[1]),
            tags=other_tag.of_two(*held),
        )
    kind: Kind = "mismatch" if story.tags else "in_communication"
    finding = finding_on(case, kind, held, story, confidence=sure(Ground.MEMBERS_IN_STACKS))
    finding.where = where_held(case, held, held[0])
    finding.clues = [in_op(side) for side in sides]
    finding.against = [Against("order", ranks, Why.NOT_COUNTED)]
    return finding


def _different_roots(case: Case, roots: dict[int, int], views: Views) -> Finding:
    (usual, most), (_, second) = Counter(roots.values()).most_common(2)
    undecided = most == second
    odd = [r for r in sorted(roots) if undecided or roots[r] != usual]
    finding = _finding(
        case, Odd("mismatch", odd, sorted(roots), Apart.ROOTS, ground=Ground.ROOTS), views
    )
    op = op_of([views[odd[0]]])
    finding.story = f.InOther(Apart.ROOTS, op, roots=tuple(sorted(roots.items())))
    return finding


def _root(view: RankView) -> int | None:
    """The root that a rank's call names; only its own frames in the library say it."""
    name = NAMES_OF_ROOT.get(view.place.op)
    if name is None:
        return None
    for frame in reversed(view.path):
        if frame.name.endswith(view.place.op) and name in frame.values:
            return frame.values[name]
    return None


def _ring(case: Case, graph: StackGraph, end: End, views: Views) -> Finding | None:
    if len(_two_sided(end, views)) == len(end.instances):
        return None
    if _send_to_one_another(end, views):
        return _open_ring(case, end, views)
    for read in (
        _other_group,
        transfer_chains.awaited,
        transfer_chains.at_the_end,
        transfer_chains.rounds_ahead,
        transfer_chains.out_of_the_loop,
        transfer_chains.both_sides,
        _other_way,
        _alone_in_users,
        _passed,
    ):
        odd = read(case, end, views)
        if odd is not None:
            return _finding(case, odd, views)
    pair = unmatched.find(case, end, views)
    if pair is not None:
        return pair
    few = _minority(case, end, views)
    if few is not None:
        return _finding(case, few, views)
    if len(end.instances) > 2 and all(len(i.members) == case.world_size for i in end.instances):
        return None  # calls of all ranks, which wait in three of them: any may be the wrong one
    return _open_ring(case, end, views)


def _send_to_one_another(end: End, views: Views) -> bool:
    """Whether two ranks are in a send to each other: each comes before its own receive, so that
    neither is late.
    """
    if len(end.ranks) != 2:
        return False
    one, other = (views[rank].place for rank in sorted(end.ranks))
    return one.op == other.op == "send" and sorted((one.peer, other.peer)) == sorted(end.ranks)


def _open_ring(case: Case, end: End, views: Views) -> Finding:
    """Ranks that wait for one another, and nothing shows which of them is wrong."""
    ring = sorted(end.ranks)
    p2p = all(views[r].place.kind == "p2p" for r in ring)
    kind: Kind = "p2p_unmatched" if p2p else "order"
    finding = _finding(case, Odd(kind, ring, [], Apart.RING, ground=Ground.RING_BY_STACKS), views)
    names = {views[r].place.op: None for r in ring}
    sides = sides_of_ring([views[r] for r in ring])
    finding.story = f.InOther(Apart.RING, f.Op(" and ".join(names)), sides=sides)
    return finding


def _two_sided(end: End, views: Views) -> list[Instance]:
    """Calls with a root that ranks are in at several lines: one may be the root's, another that of
    those who wait for it, and who is past one has not passed the other.
    """
    places = [views[instance.present[0]].place for instance in end.instances]
    called = Counter((place.op, place.group) for place in places if place.op in NAMES_OF_ROOT)
    both = zip(end.instances, places, strict=True)
    return [instance for instance, place in both if called[place.op, place.group] > 1]


def _other_group(case: Case, end: End, views: Views) -> Odd | None:
    """Ranks at the very call that others wait in, on another group."""
    for instance in end.instances:
        here = stackgraph.operation_of(views[instance.present[0]])
        seen = [r for r in instance.absent if r in views]
        strange = [r for r in seen if stackgraph.operation_of(views[r]) == here]
        if strange and len(strange) < len(instance.present):
            return Odd(
                "mismatch", strange, instance.present, Apart.OTHER_GROUP, ground=Ground.OTHER_GROUP
            )
    return None


def _other_way(case: Case, end: End, views: Views) -> Odd | None:
    """A rank that came to an operation by other lines than all others in it: it took another
    branch.
    """
    for instance in end.instances:
        ways = {r: _way(views[r]) for r in instance.present}
        usual, count = Counter(ways.values()).most_common(1)[0]
        strange = [r for r in instance.present if ways[r] != usual]
        if count < 3 or not strange or len(strange) * 3 > count:
            continue
        odd = [r for r in strange if r in end.ranks]
        if odd:
            others = [r for r in instance.present if r not in odd]
            return Odd("order", odd, others, Apart.OTHER_LINES, ground=Ground.OTHER_LINES)
    return None


def _alone_in_users(case: Case, end: End, views: Views) -> Odd | None:
    """The one rank in a call of all ranks from another line of the user's, at a lower count of a loop,
    while the others came from one line and are in several operations.
    """
    if len(end.instances) < 3 or any(len(i.members) != case.world_size for i in end.instances):
        return None
    by_line: dict[tuple[str, str, int], list[int]] = {}
    for rank in end.ranks:
        frame = views[rank].place.frame
        if frame is None or not is_users(frame):
            return None
        by_line.setdefault(_at(frame), []).append(rank)
    few, *rest = sorted(by_line.values(), key=len)
    if len(rest) != 1 or len(few) != 1 or len(rest[0]) < 3:
        return None
    orders = [compare(views[few[0]].path, views[r].path) for r in rest[0]]
    if orders.count(-1) <= orders.count(1):
        return None  # it may be ahead and wait rightly
    return Odd("order", few, rest[0], Apart.SMALLER_SIDE, ground=Ground.FEW_ELSEWHERE)


def _parting_lines(view: RankView, other: RankView) -> tuple[Frame | None, Frame | None]:
    """The outermost frames of both that are not the same; the call itself is on one line."""
    both = zip(steps(view), steps(other), strict=False)
    parted = (pair for pair in both if _at(pair[0]) != _at(pair[1]))
    return next(parted, (view.place.frame, other.place.frame))


def _way(view: RankView) -> tuple[tuple[str, str, int], ...]:
    return tuple(map(_at, steps(view)))


def _at(frame: Frame) -> tuple[str, str, int]:
    return frame.name, frame.file, frame.line


def _passed(case: Case, end: End, views: Views) -> Odd | None:
    """Of an operation that some wait in and others are past, the smaller side; the narrowest
    operation decides.
    """
    transfers = any(isinstance(i.key, Transfer) for i in end.instances)
    if case.capture.layout is None and transfers:
        # Stages of a pipeline run different branches: the order of their lines says nothing.
        return None
    best: Odd | None = None
    size = 0
    two_sided = _two_sided(end, views)
    for instance in sorted(end.instances, key=lambda i: len(i.members)):
        if best is not None and len(instance.members) > size:
            break
        ahead = _past_it(case, instance, end, views)
        if not ahead or instance in two_sided or _in_several(instance, ahead, views):
            continue
        found = _smaller_side(instance, ahead)
        if best is None or (best.or_else and not found.or_else):  # one side is better than either
            best, size = found, len(instance.members)
    return best


def _past_it(case: Case, instance: Instance, end: End, views: Views) -> list[int]:
    """Members that are further in the program than those who wait in the operation."""
    behind = views[instance.present[0]]
    others = [r for r in instance.absent if r in end.ranks]
    return sorted(r for r in others if is_ahead(case, views[r], behind, views))


def _in_several(instance: Instance, ahead: list[int], views: Views) -> bool:
    """Whether more are past the operation than wait in it, and these disagree among themselves."""
    if len(ahead) <= len(instance.present) or len(instance.members) != len(views):
        return False
    return len({operation_key(views[r]) for r in ahead}) > 1


def _smaller_side(instance: Instance, ahead: list[int]) -> Odd:
    kind: Kind = "p2p_unmatched" if isinstance(instance.key, Transfer) else "order"
    present = sorted(instance.present)
    if len(present) < len(ahead):
        return Odd("order", present, ahead, Apart.MOST_HAVE_LEFT, ground=Ground.ORDER_OF_LINES)
    if len(present) == len(ahead) and kind == "order":
        return Odd(kind, ahead, [], Apart.EITHER, ground=Ground.ONE_SIDE_OF_TWO, or_else=present)
    return Odd(kind, ahead, present, Apart.PAST, ground=Ground.ORDER_OF_LINES)


def is_ahead(case: Case, view: RankView, other: RankView, views: Views) -> bool:
    """Whether `view` is further in the program than `other`.

    Stages of a pipeline run different branches, so that the order of two lines says something only
    where a rank of the one's stage is on the other's line.
    """
    order = compare(other.path, view.path)
    if order is None or order >= 0:
        return False
    layout = case.capture.layout
    if layout is None or layout.pp == 1:
        return True
    mine = layout.coordinates(view.rank)["pp"]
    theirs = layout.coordinates(other.rank)["pp"]
    if mine == theirs:
        return True
    for depth, (a, b) in enumerate(zip(steps(view), steps(other), strict=False)):
        if counters([a]) != counters([b]):
            return True
        if a.line != b.line:
            of_theirs = _of_stage(layout, theirs, views)
            of_mine = _of_stage(layout, mine, views)
            return _on_line(of_theirs, depth, a) or _on_line(of_mine, depth, b)
    return False


def _of_stage(layout: Layout, stage: int, views: Views) -> list[RankView]:
    return [v for v in views.values() if layout.coordinates(v.rank)["pp"] == stage]


def _on_line(some: list[RankView], depth: int, frame: Frame) -> bool:
    """Whether one of them is on the frame's line."""
    at = [steps(v)[depth : depth + 1] for v in some]
    return any(_at(f) == _at(frame) for path in at for f in path)


def _minority(case: Case, end: End, views: Views) -> Odd | None:
    """Without an order: the few that are not at an operation that most of its members wait in."""
    for instance in sorted(end.instances, key=lambda i: -len(i.present)):
        absent = [r for r in instance.absent if r in end.ranks]
        if absent and 2 * len(absent) < len(instance.present):
            return Odd(
                "order", absent, instance.present, Apart.SMALLER_SIDE, ground=Ground.FEW_OF_MEMBERS
            )
    return None


def _either(case: Case, odd: Odd, views: Views) -> Finding:
    """One of two sides made different calls; calls are left out more often than made twice, but
    that is not evidence.
    """
    ahead, behind = [views[r] for r in odd.ranks], [views[r] for r in odd.or_else]
    story = f.InOther(Apart.EITHER, op_of(ahead), ranks_of(behind), op_of(behind))
    both = sorted(ahead + behind, key=lambda v: v.rank)
    finding = finding_on(case, odd.kind, both, story, confidence=sure(odd.ground))
    finding.where = where_held(case, behind, ahead[0])
    finding.clues = [in_op([v]) for v in (ahead + behind)[:_SHOWN]]
    return finding


def _finding(case: Case, odd: Odd, views: Views) -> Finding:
    if odd.or_else:
        return _either(case, odd, views)
    mine = [views[r] for r in odd.ranks]
    rest = [views[r] for r in odd.instead if r in views and r not in odd.ranks]
    op, their_op = op_of(mine), op_of(rest) if rest else None
    if odd.how is Apart.OTHER_LINES:
        here, there = _parting_lines(mine[0], rest[0])
        op, their_op = f.Op(op.name, frame=here), f.Op(op.name, frame=there)
    sides = sides_of(rest) if odd.how is not Apart.OTHER_LINES else ()
    story = f.InOther(odd.how, op, ranks_of(rest), their_op, sides=sides)
    finding = finding_on(case, odd.kind, mine, story, confidence=sure(odd.ground))
    finding.where = where_held(case, rest or mine, mine[0])
    finding.clues = [in_op([v]) for v in (mine + rest)[:_SHOWN]]
    return finding
