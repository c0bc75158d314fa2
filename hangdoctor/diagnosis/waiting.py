"""Pass: every captured rank waits in a communication. Who of them, or who else, holds the rest?

Stacks alone cannot count operations, so what this pass says is said with less confidence than the
black box or the Flight Recorder would allow, and it says which evidence would decide.
"""

from __future__ import annotations

import re

from ..stacks.place_search import HANDLE, STORE, sends
from ..text.late import late
from . import (
    called_alone,
    compiled_calls,
    deadends,
    last_answer,
    later_groups,
    local_groups,
    other_branch,
    other_root,
    other_tag,
    steps_apart,
    two_threads,
    unset_keys,
)
from . import findings as f
from .case import Case, finding_on, frame_of, in_op, op_of, ranks_of, sides_of, where_held
from .confidence import Ground, sure
from .draft import Draft, add_first
from .findings import Against, Apart, Clue, Finding, Why
from .gradients import mark
from .position import compare, counters, group_by_operation, have_other_parts, steps
from .unmatched import is_half
from .view import RankView

_CHOSEN_GROUP = late(r"\bgroup\s*=\s*[\w.]+\[(?!\s*\d+\s*\])")
# A variable that holds one: of a group that is not the whole job's, or a mesh's
_VARIABLE = late(r"\bgroup\s*=\s*[a-z_]\w*\s*[,)]")
_MESH = late(r"\bredistribute\(\s*(?:device_)?mesh\b|\bdevice_mesh\s*=\s*mesh\b")
# A rank leaves it once it has what all others had for it: they may still wait for one another.
_EXCHANGE = late(r"i?all_?to_?all\w*", re.I)
_CHOSEN_ROOT = late(r"\b(?:root|src|dst)\s*=\s*(?![A-Z_]+\b)[A-Za-z_]")


def run(case: Case, draft: Draft) -> None:
    """Who of the waiting ranks, or who was not seen, where no rank is outside."""
    add_first(find, case, draft)


def find(case: Case, blamed: set[int]) -> list[Finding]:
    """The cause among ranks that all wait, or among those that could not be seen."""
    waiting = [v for v in case.waiting if v.rank not in blamed]
    if not waiting or blamed or (len(case.views) == 1 and not case.silent):
        return []  # one rank alone shows which ranks it waits with, not which blocks it
    if case.silent:
        return [_unreachable(case, waiting)]
    if case.absent or case.unread:
        return []  # not all were captured: the summary says so
    decided = later_groups.left_alone(case, waiting) or called_alone.find(case, waiting)
    if decided is None and later_groups.are_made(waiting):
        decided = later_groups.apart(case, waiting) or local_groups.find(case, waiting)
    decided = decided or two_threads.find(case, waiting) or other_tag.find(case, waiting)
    decided = decided or other_root.find(case, waiting) or steps_apart.find(case, waiting)
    decided = decided or last_answer.find(case, waiting)
    if decided is not None:
        return [decided]
    found = mark(case, unset_keys.find(case, waiting)) or _of_all(case, waiting)
    # Of a part of the job, who has not come may be among those that are not there.
    whole = [] if case.capture.part else found
    return whole or [one for one in found if one.kind != "in_communication"]


def _of_all(case: Case, waiting: list[RankView]) -> list[Finding]:
    """By the members of the operations, where stacks show them; else by the order of the lines."""
    by_members = deadends.find(case, waiting)
    if by_members is None:
        return []  # two sides, and nothing shows which is wrong: the summary says so
    return mark(case, by_members or _without_members(case, waiting))


def _without_members(case: Case, waiting: list[RankView]) -> list[Finding]:
    groups = _alike(waiting)
    if len(groups) > 1 and compiled_calls.all_in_jax(waiting):
        return _smaller_side(case, groups)
    return _by_lines(case, waiting)


def _by_lines(case: Case, waiting: list[RankView]) -> list[Finding]:
    """Without known members of operations: by the order of the lines that ranks are at."""
    peer = _unanswered(waiting)
    if peer is not None:
        return [peer_finding(case, *peer)]
    groups = _alike(waiting)
    if all(map(is_half, waiting)):
        return []  # stages of a pipeline are at different lines of it by their nature
    if _half_against_collective(waiting):
        return []  # its unknown peer is among the others, and may have left its half out
    if _at_handles_of_one_function(groups):
        return []  # all calls were issued before; which is waited for first says nothing
    if all(view.place.op == STORE for view in waiting):
        return []  # each may wait for another key, which one of them was to set, or one that is gone
    beyond = passed(case)
    if len(groups) == 1 and of_chosen_groups(groups[0]):
        return []  # at one line, of as many groups as the program chooses from
    if len(groups) == 1 and not beyond:
        return [_in_communication(case, groups[0], beyond)]
    # Several may be a group of their own, unless the others are in a wait, such as JAX's compiled calls.
    apart = all(v.place.op for v in beyond) or len(waiting) == 1
    if len(groups) == 1 and apart and 2 * len(groups[0]) < len(beyond):
        return [_order(case, groups[0], beyond, Apart.BEHIND)]
    branch = _branch_apart(groups)
    if branch is not None:
        return [_order(case, *branch, Apart.SMALLER_SIDE)]
    earliest = _earliest(groups)
    if earliest is None:
        return _odd_one(case, groups)
    return _behind_all(case, earliest, groups, beyond)


def _behind_all(
    case: Case, earliest: list[RankView], groups: list[list[RankView]], beyond: list[RankView]
) -> list[Finding]:
    """One operation is before all others in the program: who is in it, or who is past it."""
    rest = [v for g in groups if g is not earliest for v in g]
    few = len(earliest) <= len(rest) + len(beyond)
    mixed = len(groups) > 2
    if mixed and not (len(earliest) == 1 and _by_count(earliest[0], rest)):
        return []  # some of the others wait for others among them
    if few and (len(earliest) > 1 or not rest):
        under, _ = called_alone.under_one(earliest + rest)
        if under or not all(_in_one_function(earliest[0], view) for view in rest):
            return []  # another path of the program: it never came to the others' call
        return [_in_communication(case, earliest, beyond + rest)]
    if len(earliest) == 1 and deadends.in_smaller_group(earliest[0]):
        return []  # another member of its group left the call out, or this one made one too many
    strange = other_branch.by_other_lines(earliest, rest)
    if strange is not None:
        others = [view for view in rest if view is not strange]
        finding = _order(case, [strange], others, Apart.OTHER_LINES)
        finding.clues.append(in_op(earliest))
        return [finding]
    if len(earliest) == 1 and _has_chosen_root(earliest[0]):
        return []  # one of those that have left it may have named another root
    if len(earliest) == 1 and _EXCHANGE.fullmatch(earliest[0].place.op):
        return []  # one of those that have left it may have sent it less than it waits for
    if len(earliest) == 1:
        return [_order(case, earliest, rest + beyond, Apart.BEHIND)]
    ahead = rest or beyond
    if all(map(is_half, earliest)) and (len(ahead) > 1 or _of_all_handles(earliest)):
        return []  # they may wait for one another, with tags that differ
    return [_order(case, ahead, earliest, Apart.AHEAD)]


def _of_all_handles(waiting: list[RankView]) -> bool:
    """Whether they wait for all transfers of an exchange, of which those with a rank past it may be done."""
    return all(view.place.op.lower() == "waitall" for view in waiting)


def _has_chosen_root(view: RankView) -> bool:
    """Whether a variable names the root of its call: the others leave it without this rank where one
    of them takes another for the root.
    """
    frame = view.place.frame
    named = frame is not None and _CHOSEN_ROOT.search(frame.code) is not None
    return named and view.place.kind == "collective"


def _smaller_side(case: Case, groups: list[list[RankView]]) -> list[Finding]:
    """The smaller of two groups. JAX's calls pair by their number alone, so that lines do not show
    who is past whom; none of equal groups, or of three.
    """
    most, few = groups[:2]
    if len(groups) > 2 or len(few) == len(most):
        return []
    return [_order(case, few, most, Apart.SMALLER_SIDE)]


def _alike(waiting: list[RankView]) -> list[list[RankView]]:
    """Groups of ranks in one operation; sends and receives with unknown peers are taken as one."""
    groups = group_by_operation([v for v in waiting if not is_half(v)])
    peerless = [v for v in waiting if is_half(v)]
    groups += [peerless] if peerless else []
    return sorted(groups, key=lambda group: (-len(group), group[0].rank))


def _half_against_collective(waiting: list[RankView]) -> bool:
    """Whether one rank is in a transfer with an unknown peer, and all others are in collectives."""
    rest = [view for view in waiting if not is_half(view)]
    return len(waiting) - len(rest) == 1 and all(v.place.kind == "collective" for v in rest)


def of_chosen_groups(waiting: list[RankView]) -> bool:
    """Whether the line takes its group out of several, ``group=self.groups[task]``; or from a
    variable, where no rank's group is that of the whole job.
    """
    caller = waiting[0].place.caller
    if caller is None:
        return False
    if _CHOSEN_GROUP.search(caller.code) is not None or _MESH.search(caller.code) is not None:
        return True
    small = all(view.place.group == "sub" for view in waiting)
    return small and _VARIABLE.search(caller.code) is not None


def _at_handles_of_one_function(groups: list[list[RankView]]) -> bool:
    """Whether ranks wait for different handles at neighbouring lines of one function, such as for a
    send and for a receive.
    """
    looks = [group[0] for group in groups]
    if len(looks) < 2 or any(v.place.op != HANDLE for v in looks):
        return False
    paths = [[(f.name, f.file, f.line) for f in v.path] for v in looks]
    outer = {tuple(path[:-1]) for path in paths}
    inner = {path[-1][:2] for path in paths}
    return len(outer) == len(inner) == 1


def _branch_apart(groups: list[list[RankView]]) -> tuple[list[RankView], list[RankView]] | None:
    """(one, most) by the call in which their stacks first part, where they are in three operations
    or more: the others are in one call of the user's, such as a backward over several groups.
    """
    views = [v for group in groups for v in group]
    if len(groups) < 3 or any(v.place.kind == "p2p" for v in views):
        return None
    branches: dict[object, list[RankView]] = {}
    for view in views:
        branches.setdefault(_key_at(view, _parting(views)), []).append(view)
    most = max(branches.values(), key=len)
    few = [v for v in views if v not in most]
    # Of several, some would wait for the others among them.
    return (few, most) if len(few) == 1 and len(most) > 2 else None


def _parting(views: list[RankView]) -> int:
    """How many frames all stacks have in common, from the outermost on."""
    depth = 0
    while len({_key_at(v, depth) for v in views}) == 1 and depth < len(steps(views[0])):
        depth += 1
    return depth


def _key_at(view: RankView, depth: int) -> object:
    path = steps(view)
    if depth >= len(path):
        return None
    frame = path[depth]
    return frame.name, frame.file, frame.line, counters([frame])


def passed(case: Case) -> list[RankView]:
    """Ranks that are in no known communication although all causes are exhausted: they are past
    it.
    """
    return [v for v in case.alive if not v.waits and v.path]


def _earliest(groups: list[list[RankView]]) -> list[RankView] | None:
    """The group that is before every other in the program; None where the order cannot be told."""
    for group in groups:
        order = [compare(group[0].path, other[0].path) for other in groups if other is not group]
        if all(o is not None and o < 0 for o in order):
            return group
    return None


def _by_count(one: RankView, rest: list[RankView]) -> bool:
    """Whether a loop's counter parts it from all others, which have come to one number."""
    depth = _parting([one, *rest])
    if any(len(steps(view)) <= depth for view in (one, *rest)):
        return False
    own = counters(steps(one)[depth : depth + 1])
    theirs = {counters(steps(view)[depth : depth + 1]) for view in rest}
    return len(rest) > 1 and len(theirs) == 1 and own not in theirs


def _in_one_function(one: RankView, other: RankView) -> bool:
    """Whether both call from one function of the user's."""
    mine, theirs = one.place.frame, other.place.frame
    if mine is None or theirs is None:
        return mine is theirs
    return (mine.name, mine.file) == (theirs.name, theirs.file)


def _unanswered(waiting: list[RankView]) -> tuple[RankView, RankView] | None:
    """(waiter, peer) of a send or receive whose peer is in something that is not the other half
    of it.
    """
    by_rank = {v.rank: v for v in waiting}
    found: list[tuple[RankView, RankView]] = []
    for view in waiting:
        peer = by_rank.get(view.place.peer)
        if view.place.kind == "p2p" and peer is not None and not _may_answer(view, peer):
            found.append((view, peer))
    # Several waits on one peer agree; on several peers they do not single one out.
    return found[0] if len({p.rank for _, p in found}) == 1 else None


def _may_answer(view: RankView, peer: RankView) -> bool:
    """Whether the peer is in the other half of a transfer, or waits for a third rank: then that one
    is to be followed instead.
    """
    if peer.place.kind != "p2p":
        return False
    if peer.place.peer not in (-1, view.rank):
        return True
    if "sendrecv" in (peer.place.op + view.place.op).lower():
        return True
    return sends(peer.place.op) != sends(view.place.op)


def peer_finding(case: Case, waiter: RankView, peer: RankView) -> Finding:
    """`waiter` sends to or receives from `peer`, which is elsewhere."""
    story = f.PeerElsewhere(waiter.rank, op_of([waiter]), op_of([peer]))
    finding = finding_on(
        case, "p2p_unmatched", [peer], story, confidence=sure(Ground.PEER_ELSEWHERE)
    )
    finding.where = where_held(case, [waiter], peer)
    finding.clues = [in_op([waiter]), in_op([peer])]
    finding.against = [Against("in_communication", (waiter.rank, peer.rank), Why.NOT_HALVES)]
    return finding


def _in_communication(case: Case, held: list[RankView], beyond: list[RankView]) -> Finding:
    ranks, past = ranks_of(held), ranks_of(beyond)
    everyone = len(held) == case.world_size
    story: f.Story = f.HeldBehind(op_of(held), past)
    if everyone or not past:
        story = f.AllIn(op_of(held), ranks, counted=False)
    ground = Ground.ALL_IN_STACKS if everyone else Ground.MEMBERS_IN_STACKS
    finding = finding_on(case, "in_communication", held, story, confidence=sure(ground))
    finding.where = where_held(case, held, held[0])
    finding.waiters = None
    finding.clues = [in_op(held)]
    still = tuple(v.rank for v in held if v.motion == "still")
    if still:
        finding.clues.append(Clue("proc", still, f.DidNotRun()))
    finding.against = [Against("order", ranks, Why.NOT_COUNTED)]
    if past:
        finding.clues.append(
            Clue("stack", past, f.IsPast(frame_of(beyond[0]) or beyond[0].path[-1]))
        )
        finding.against.append(Against("not_entered", past, Why.PASSED))
    return finding


def _order(case: Case, odd: list[RankView], others: list[RankView], how: Apart) -> Finding:
    story = f.InOther(how, op_of(odd), ranks_of(others), op_of(others), sides=sides_of(others))
    ground = Ground.FEW_ELSEWHERE if how is Apart.SMALLER_SIDE else Ground.ORDER_OF_LINES
    finding = finding_on(case, "order", odd, story, confidence=sure(ground))
    finding.where = where_held(case, others, odd[0])
    finding.clues = [in_op(side) for side in (odd, *group_by_operation(others))]
    finding.against = [Against("in_communication", ranks_of(others), Why.NOT_ONE_OPERATION)]
    return finding


def _odd_one(case: Case, groups: list[list[RankView]]) -> list[Finding]:
    """Different operations whose order is unknown: the small group, where there is one; else both
    ranks of two, and of more none, since most of them only wait.
    """
    if not groups:
        return []
    majority, rest = groups[0], [v for g in groups[1:] for v in g]
    if all(have_other_parts(v.path, majority[0].path) for v in rest):
        return []
    if len(rest) * 2 < len(majority):
        odd, ground = rest, Ground.FEW_ELSEWHERE
        story = f.InOther(Apart.SMALLER_SIDE, op_of(odd), ranks_of(majority), op_of(majority))
    elif len(majority) + len(rest) > 2:
        return []
    else:
        odd, ground = majority + rest, Ground.NO_ORDER
        story = f.InOther(Apart.NO_ORDER, op_of(odd))
    finding = finding_on(case, "order", odd, story, confidence=sure(ground))
    finding.where = where_held(case, majority, odd[0])
    finding.clues = [in_op(g) for g in groups]
    finding.against = [Against("in_communication", ranks_of(majority), Why.NOT_ONE_OPERATION)]
    return [finding]


def _unreachable(case: Case, waiting: list[RankView]) -> Finding:
    unseen = sorted(case.silent)
    nodes = sorted({s.node for s in case.capture.silent if set(s.ranks) & set(unseen)})
    whys = tuple(sorted({case.silent[r] for r in unseen}))
    return Finding(
        kind="unreachable",
        ranks=unseen,
        story=f.NotSeen(whys, tuple(nodes)),
        confidence=sure(Ground.NODE_SILENT),
        nodes=nodes,
        where=where_held(case, waiting, None),
        waiters=f.Waiters(ranks_of(waiting), op_of(waiting)),
        clues=[Clue("silence", tuple(unseen), f.Silence(whys)), in_op(waiting)],
        against=[Against("in_communication", ranks_of(waiting), Why.NOT_SEEN_IN_IT)],
    )
