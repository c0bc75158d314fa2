"""Pass: the beginning and the end of a job: who has not joined, who is still inside while others leave."""

from __future__ import annotations

from ..model import Alternative, Cause, Evidence
from ..ranges import format_ranks
from .case import Case, names, nodes_of, on_node, operation_of, short, where_held, who
from .faults import left_early
from .view import RankView


def find_start(case: Case, blamed: set[int]) -> list[Cause]:
    """Ranks that others wait for in rendezvous or in the making of a process group."""
    joining = [v for v in case.waiting if v.place.kind == "start" and v.rank not in blamed]
    if not joining:
        return []
    joined = {v.rank for v in joining}
    late = [v for v in case.alive if v.rank not in joined | blamed and not v.stopped and v.place.kind != "end"]
    # Past the first set-up every rank has communicated: then new_group is an operation like any other.
    if any(v.place.kind in ("collective", "p2p") for v in late) and len(late) >= len(joining):
        return []
    unseen = case.absent + sorted(case.silent)
    if not late and not unseen:
        return [] if blamed else [_everyone_joins(case, joining)]
    return [_late(case, joining, [v]) for v in late] + ([_unseen(case, joining, unseen)] if unseen else [])


def _late(case: Case, joining: list[RankView], late: list[RankView]) -> Cause:
    view = late[0]
    frame = view.place.frame or (view.path[-1] if view.path else None)
    at = f"it stands at {short(frame)}" if frame is not None else "its stack could not be read"
    shown = " < ".join(short(f) for f in reversed(view.path[-4:]))
    return Cause(
        "start_stall", [v.rank for v in late], nodes_of(late), 0.9,
        f"{who(late)} has not joined {operation_of(joining)}, where {names(v.rank for v in joining).lower()} wait for it; {at}.",
        where_held(case, joining, view),
        [Evidence("stack", [v.rank for v in late], shown or "no stack"),
         Evidence("stack", [v.rank for v in joining], f"wait in {operation_of(joining)}")],
        advice=f"See what it does before init: py-spy dump --pid {view.pid}{on_node(view)}.",
    )  # fmt: skip


def _unseen(case: Case, joining: list[RankView], unseen: list[int]) -> Cause:
    nodes = sorted({s.node for s in case.capture.silent if set(s.ranks) & set(unseen)})
    why = "; ".join(sorted({case.silent[r] for r in unseen if r in case.silent})) or "no process of that rank was found"
    return Cause(
        "start_stall", unseen, nodes, 0.8 if not case.silent else 0.7,
        f"{names(unseen)} {'has' if len(unseen) == 1 else 'have'} not joined {operation_of(joining)}: {why}; "
        f"{names(v.rank for v in joining).lower()} wait{'s' if len(joining) == 1 else ''} there.",
        where_held(case, joining, None),
        [Evidence("silence", unseen, why), Evidence("stack", [v.rank for v in joining], f"wait in {operation_of(joining)}")],
        advice="Check that the launcher started every rank, that WORLD_SIZE is the number of ranks started, and the first lines of their logs.",
    )  # fmt: skip


def _everyone_joins(case: Case, joining: list[RankView]) -> Cause:
    ranks = [v.rank for v in joining]
    return Cause(
        "start_stall", ranks, nodes_of(joining), 0.5,
        f"All ranks ({format_ranks(ranks)}) are in {operation_of(joining)} and it does not finish: nobody is missing, so they cannot reach each other.",
        where_held(case, joining, joining[0]),
        [Evidence("stack", ranks, f"all stand in {operation_of(joining)}")],
        [Alternative("not_entered", [], "every rank has joined")],
        "Check MASTER_ADDR and MASTER_PORT on every node, the interface (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME) and the firewall.",
    )  # fmt: skip


def find_end(case: Case, blamed: set[int]) -> list[Cause]:
    """At the end of a job: the few that are still inside while the others leave, or the few that left too soon."""
    leaving = [v for v in case.alive if v.place.kind == "end" and v.rank not in blamed]
    gone_well = case.gone if left_early(case) else []
    if not leaving and not gone_well:
        return []
    inside = [v for v in case.alive if v.place.kind != "end" and v.rank not in blamed]
    if not inside and not gone_well:
        return [_all_leave(case, leaving)] if len(leaving) == len(case.views) and not case.absent and not blamed else []
    left = len(leaving) + len(gone_well)
    if any(not v.waits for v in inside):
        inside = [v for v in inside if not v.waits]  # who is not in a communication holds those who are
    elif left < len(inside):
        return [_end_cause(case, leaving, inside, "has left into")]
    if not inside:
        inside = leaving
    if not inside:
        return []  # all have left in good order
    return [_end_cause(case, inside, leaving + gone_well, "is still at")]


def _end_cause(case: Case, culprits: list[RankView], others: list[RankView], verb: str) -> Cause:
    view, ranks = culprits[0], [v.rank for v in culprits]
    frame = view.place.frame or (view.path[-1] if view.path else None)
    place = view.place.op or "code"
    at = f"{place}{f' ({short(frame)})' if frame is not None else ''}"
    gone = [v.rank for v in others if v.gone]
    alive = [v.rank for v in others if not v.gone]
    rest = [f"{names(gone).lower()} {'has' if len(gone) == 1 else 'have'} ended" if gone else "",
            f"{names(alive).lower()} {'is' if len(alive) == 1 else 'are'} in {operation_of([v for v in others if not v.gone])}" if alive else ""]  # fmt: skip
    if len(ranks) > 1:
        verb = verb.replace("is ", "are ").replace("has ", "have ")
    return Cause(
        "end_stall", ranks, nodes_of(culprits), 0.8,
        f"{who(culprits)} {verb} {at} while " + " and ".join(r for r in rest if r) + ".",
        where_held(case, [v for v in others if not v.gone] or culprits, view),
        [Evidence("stack", ranks, " < ".join(short(f) for f in reversed(view.path[-4:])) or "no stack"),
         Evidence("proc" if gone else "stack", gone + alive, " and ".join(r for r in rest if r))],
        advice="Every rank must run the same number of operations before destroy_process_group(): compare the ends of their loops.",
    )  # fmt: skip


def _all_leave(case: Case, leaving: list[RankView]) -> Cause:
    ranks = [v.rank for v in leaving]
    return Cause(
        "end_stall", ranks, nodes_of(leaving), 0.5,
        f"All ranks ({format_ranks(ranks)}) are in {operation_of(leaving)} and none of them gets out.",
        where_held(case, leaving, leaving[0]),
        [Evidence("stack", ranks, f"all stand in {operation_of(leaving)}")],
        advice="Look for threads that are still in a collective: hangdoctor dump --native shows them.",
    )  # fmt: skip
