"""Pass: the beginning and the end of a job: who has not joined, who is still inside while others
leave.
"""

from __future__ import annotations

from ..model.diagnosis import Kind
from ..stacks import one_rank
from . import findings as f
from . import later_groups, start_up
from .case import (
    Case,
    finding_on,
    frame_of,
    in_op,
    nodes_of,
    op_of,
    ranks_of,
    stack_clue,
    where_held,
)
from .confidence import Ground, sure
from .draft import Draft, add_first
from .faults import has_communicated, left_early, unstarted
from .findings import Against, Clue, Finding, Why
from .position import steps
from .view import RankView

_RPC_ENDS = "rpc.shutdown"


def run_start(case: Case, draft: Draft) -> None:
    """Set-up: who has not joined."""
    add_first(find_start, case, draft)


def run_end(case: Case, draft: Draft) -> None:
    """Teardown: who is left inside, or has left too soon."""
    add_first(find_end, case, draft)


def find_start(case: Case, blamed: set[int]) -> list[Finding]:
    """Ranks that others wait for in rendezvous or in the making of a process group."""
    joining = [v for v in case.waiting if v.place.kind == "start" and v.rank not in blamed]
    if not joining:
        return []
    late = _late_ranks(case, {v.rank for v in joining} | blamed)
    if _past_set_up(joining, late):
        return []
    unseen = case.absent + sorted(case.silent) + unstarted(case)
    if not late and not unseen:
        return [] if blamed or case.unread else [_none_leaves_set_up(case, joining)]
    found = [_late(case, joining, view) for view in late]
    if unseen:
        found.append(_not_started(case, joining, unseen))
    reached = start_up.in_store(case, joining)
    if reached is not None:
        for finding in found:
            finding.clues.append(reached)
    return found


def _none_leaves_set_up(case: Case, joining: list[RankView]) -> Finding:
    """Of the first set-up, who cannot reach the others is unknown; of further groups, who asks for
    others may be seen.
    """
    if later_groups.are_made(joining):
        return later_groups.find(case, joining)
    return _stuck_together(case, joining, starting=True)


def _past_set_up(joining: list[RankView], late: list[RankView]) -> bool:
    """Whether the job is beyond its first set-up: then new_group is an operation like any other."""
    if any(has_communicated(v) for v in joining + late):
        return True
    communicating = any(v.place.kind in ("collective", "p2p") for v in late)
    return communicating and len(late) >= len(joining)


def _late_ranks(case: Case, explained: set[int]) -> list[RankView]:
    """Living ranks that could join and have not; those in teardown are beyond it."""
    able = [v for v in case.alive if not v.stopped and not v.unread and v.place.kind != "end"]
    return [v for v in able if v.rank not in explained]


def _late(case: Case, joining: list[RankView], view: RankView) -> Finding:
    story = f.NotJoined(op_of(joining), later=later_groups.are_made(joining))
    finding = finding_on(case, "start_stall", [view], story, confidence=sure(Ground.NOT_JOINED))
    finding.where = where_held(case, joining, view)
    finding.clues = [stack_clue([view]), in_op(joining)]
    return finding


def _not_started(case: Case, joining: list[RankView], unseen: list[int]) -> Finding:
    whys = tuple(sorted({case.silent[r] for r in unseen if r in case.silent}))
    if not whys:
        whys = ("no black box of it is there" if case.capture.over else "no process found",)
    return Finding(
        kind="start_stall",
        ranks=unseen,
        story=f.NotJoined(op_of(joining), "; ".join(whys)),
        confidence=sure(Ground.NOT_JOINED_SILENT if case.silent else Ground.NOT_JOINED_UNSEEN),
        nodes=_homes_of(case, unseen),
        where=where_held(case, joining, None),
        waiters=f.Waiters(ranks_of(joining), op_of(joining)),
        clues=[
            Clue("silence", tuple(unseen), f.Silence(whys)),
            *start_up.asked_for(case, unseen),
            in_op(joining),
        ],
    )


def _homes_of(case: Case, unseen: list[int]) -> list[str]:
    """The nodes that these ranks are on: those that did not answer, else those on which the job's
    launcher was to start them.
    """
    wanted = set(unseen)
    silent = {s.node for s in case.capture.silent if wanted & set(s.ranks)}
    planned = {node for node, ranks in start_up.planned(case) if wanted & set(ranks)}
    return sorted(silent or planned)


def _stuck_together(case: Case, views: list[RankView], starting: bool) -> Finding:
    story = f.NoneLeaves(op_of(views), starting)
    kind: Kind = "start_stall" if starting else "end_stall"
    finding = finding_on(case, kind, views, story, confidence=sure(Ground.NONE_LEAVES))
    finding.where = where_held(case, views, views[0])
    finding.clues = [in_op(views)]
    finding.against = [Against("not_entered", (), Why.ALL_JOINED)] if starting else []
    return finding


def find_end(case: Case, blamed: set[int]) -> list[Finding]:
    """At the end of a job: the few that are still inside while the others leave, or the few that
    left too soon.
    """
    workers = _workers_that_left(case, blamed)
    if workers is not None:
        return [_end_finding(case, *workers, left=True)]
    leaving, inside = _leaving_and_inside(case, blamed)
    ended = case.gone if left_early(case) else []
    if not leaving and not ended:
        return []
    if case.unread and all(v.waits for v in inside):
        return []  # who is still inside may be among those whose stacks were not read
    if inside or ended:
        return _some_leave(case, leaving, ended, inside)
    return _all_leave(case, leaving, blamed)


def _leaving_and_inside(case: Case, blamed: set[int]) -> tuple[list[RankView], list[RankView]]:
    """Ranks in teardown, and those that are known to be elsewhere."""
    free = [v for v in case.alive if v.rank not in blamed]
    leaving = [v for v in free if v.place.kind == "end"]
    return leaving, [v for v in free if v.place.kind != "end" and not v.unread]


def _some_leave(
    case: Case, leaving: list[RankView], ended: list[RankView], inside: list[RankView]
) -> list[Finding]:
    """The smaller side: those that left too soon, or those that are still inside."""
    outside = [v for v in inside if not v.waits]
    if not outside and len(leaving) + len(ended) < len(inside):
        return [_end_finding(case, leaving, inside, left=True)]
    # Who is not in a communication blocks those who are.
    culprits = outside or inside or leaving
    if not culprits:
        return []  # all have left cleanly
    return [_end_finding(case, culprits, leaving + ended, left=False)]


def _workers_that_left(
    case: Case, blamed: set[int]
) -> tuple[list[RankView], list[RankView]] | None:
    """(the few workers in RPC's shutdown, the others, who still call the server), where the server is in
    its shutdown too, as it serves from there, and never comes to these calls.
    """
    free = [v for v in case.alive if v.rank not in blamed]
    leaving = [v for v in free if v.waits and v.place.op == _RPC_ENDS]
    calling = [v for v in free if v.waits and v.place.op != _RPC_ENDS]
    serves = _served_by(calling)
    workers = [v for v in leaving if v.rank != serves]
    known = serves is not None and len(workers) < len(leaving)
    whole = len(leaving) + len(calling) == case.world_size
    return (workers, calling) if known and whole and 0 < len(workers) < len(calling) else None


def _served_by(inside: list[RankView]) -> int | None:
    """The one rank for which a condition on the way of all these does not hold; None without one."""
    shut_out = [
        {one_rank.shut_out(frame.only) for frame in steps(view) if frame.only} for view in inside
    ]
    found = set.intersection(*shut_out) - {None} if shut_out else set()
    return found.pop() if len(found) == 1 else None


def _all_leave(case: Case, leaving: list[RankView], blamed: set[int]) -> list[Finding]:
    """One finding on the whole job, where no rank is missing or explained otherwise."""
    whole = len(leaving) == len(case.views) and not case.absent and not blamed
    return [_stuck_together(case, leaving, starting=False)] if whole else []


def _end_finding(
    case: Case, culprits: list[RankView], others: list[RankView], left: bool
) -> Finding:
    gone = [v for v in others if v.gone]
    alive = [v for v in others if not v.gone and v not in culprits]
    view = culprits[0]
    story = f.StillIn(
        op=f.Op(view.place.op, frame=frame_of(view)),
        ended=ranks_of(gone),
        leaving=ranks_of(alive),
        leaving_op=op_of(alive) if alive else None,
        left=left,
    )
    finding = finding_on(case, "end_stall", culprits, story, confidence=sure(Ground.LEAVING))
    finding.nodes = nodes_of(culprits)
    finding.where = where_held(case, alive or culprits, view)
    finding.waiters = None
    finding.clues = [stack_clue(culprits)]
    if gone:
        finding.clues.append(Clue("proc", ranks_of(gone), f.EndedCleanly()))
    if alive:
        finding.clues.append(in_op(alive))
    return finding
