"""Pass: every captured rank waits in a communication. Who of them, or who else, holds the rest?

Stacks alone cannot count operations, so what this pass says is said with less confidence than the
black box or the Flight Recorder would allow, and it says which evidence would decide.
"""

from __future__ import annotations

from ..model import Alternative, Cause, Evidence
from ..ranges import format_ranks
from . import deadends
from .case import Case, names, nodes_of, operation_of, short, where_held, who
from .position import compare, group_by_operation
from .view import RankView

_COUNT_ADVICE = deadends.ADVICE


def find(case: Case, blamed: set[int]) -> list[Cause]:
    """The cause among ranks that all wait, or among those that nobody could ask."""
    waiting = [v for v in case.waiting if v.rank not in blamed]
    if not waiting or blamed or (len(case.views) == 1 and not case.silent):
        return []  # one rank alone says whom it waits with, not who keeps it
    unseen = sorted(case.silent)
    if unseen:
        return [_unreachable(case, waiting, unseen)]
    if case.absent:
        return []  # ranks of other hosts were not asked: `verdict` says so
    told = deadends.find(case, waiting)
    if told:
        return told
    ahead = passed(case)
    groups = group_by_operation(waiting)
    peer = _unanswered(waiting)
    if peer is not None:
        return [peer_cause(case, *peer)]
    if len(groups) == 1 and not ahead:
        return [_in_communication(case, groups[0], ahead)]
    earliest = _earliest(groups)
    if earliest is None:
        return [_odd_one(case, groups)] if groups else []
    others = [g for g in groups if g is not earliest]
    behind = sum(len(g) for g in others) + len(ahead)
    if len(earliest) <= behind and (len(earliest) > 1 or not others):
        return [_in_communication(case, earliest, ahead + [v for g in others for v in g])]
    if len(earliest) == 1:
        return [_order(case, earliest, [v for g in others for v in g] + ahead, "behind")]
    last = [v for g in others for v in g]
    return [_order(case, last, earliest, "ahead")]


def passed(case: Case) -> list[RankView]:
    """Ranks that are in no known communication although all causes are exhausted: they are past it."""
    return [v for v in case.alive if not v.waits and v.path]


def _earliest(groups: list[list[RankView]]) -> list[RankView] | None:
    """The group that is before every other in the program; None where the order cannot be told."""
    for group in groups:
        order = [compare(group[0].path, other[0].path) for other in groups if other is not group]
        if all(o is not None and o < 0 for o in order):
            return group
    return None


def _unanswered(waiting: list[RankView]) -> tuple[RankView, RankView] | None:
    """(waiter, peer) of a send or receive whose peer stands in something that is not the other half of it."""
    by_rank = {v.rank: v for v in waiting}
    found: list[tuple[RankView, RankView]] = []
    for view in waiting:
        peer = by_rank.get(view.place.peer)
        if view.place.kind != "p2p" or peer is None:
            continue
        if peer.place.kind == "p2p" and peer.place.peer not in (-1, view.rank):
            continue  # it waits for a third rank: follow that one instead
        answers = peer.place.kind == "p2p" and ("send" in peer.place.op) != ("send" in view.place.op)
        if not answers:
            found.append((view, peer))
    # Several waits on one peer agree; on several peers they do not single one out.
    return found[0] if len({p.rank for _, p in found}) == 1 else None


def peer_cause(case: Case, waiter: RankView, peer: RankView) -> Cause:
    """`waiter` sends to or receives from `peer`, which is elsewhere."""
    verb = "sends to" if "send" in waiter.place.op else "waits to receive from"
    missing = "receive" if "send" in waiter.place.op else "send"
    return Cause(
        "p2p_unmatched", [peer.rank], nodes_of([peer]), 0.7,
        f"{who([peer])} never posts the {missing} that rank {waiter.rank} needs: rank {waiter.rank} {verb} it in "
        f"{operation_of([waiter])}, and it stands in {operation_of([peer])}.",
        where_held(case, [waiter], peer),
        [Evidence("stack", [waiter.rank], f"{waiter.place.op} with rank {peer.rank}"),
         Evidence("stack", [peer.rank], f"in {operation_of([peer])}, which is not the other half")],
        [Alternative("in_communication", [waiter.rank, peer.rank], "the two do not stand in matching halves of one transfer")],
        "Compare the order of sends and receives of these two ranks. " + _COUNT_ADVICE,
    )  # fmt: skip


def _in_communication(case: Case, held: list[RankView], beyond: list[RankView]) -> Cause:
    ranks = [v.rank for v in held]
    everyone = len(held) == case.world_size
    past = [v.rank for v in beyond]
    if everyone:
        sentence = (
            f"All {len(ranks)} ranks stand in the same {operation_of(held)} and it does not finish: "
            "network, NCCL or a GPU, or one of them counts one operation more or less than the others."
        )
    else:
        sentence = (
            f"{names(ranks)} {'is' if len(ranks) == 1 else 'are'} held in {operation_of(held)}, earlier in the program than "
            f"where {names(past).lower()} wait{'s' if len(past) == 1 else ''}: the others have left it behind, so it does not finish for "
            f"{'this one' if len(ranks) == 1 else 'these'}, or a member of its group that is not among the captured ranks is missing."
        )
    evidence = [Evidence("stack", ranks, f"stand in {operation_of(held)}")]
    still = [v.rank for v in held if v.motion == "still"]
    if still:
        evidence.append(Evidence("proc", still, "did not run once between the samples"))
    if past:
        evidence.append(Evidence("stack", past, f"are past it: {short(beyond[0].place.frame or beyond[0].path[-1])}"))
    alternatives = [Alternative("order", ranks, "stacks cannot count operations: a rank that skipped one would look the same")]
    if past:
        alternatives.append(
            Alternative("not_entered", past, "a different place alone is not guilt: these have passed the operation")
        )
    return Cause(
        "in_communication", ranks, nodes_of(held), 0.55 if everyone else 0.5, sentence,
        where_held(case, held, held[0]), evidence, alternatives,
        f"Check links and GPUs of {', '.join(nodes_of(held)) or 'these ranks'} (ibstat, nvidia-smi -q, dmesg for Xid). " + _COUNT_ADVICE,
    )  # fmt: skip


def _order(case: Case, odd: list[RankView], others: list[RankView], side: str) -> Cause:
    ranks = [v.rank for v in odd]
    is_are = "is" if len(ranks) == 1 else "are"
    what = "it has skipped that operation" if side == "ahead" else "it runs one operation that they do not"
    return Cause(
        "order", ranks, nodes_of(odd), 0.55,
        f"{who(odd)} {is_are} {side}: in {operation_of(odd)} while {names(v.rank for v in others).lower()} wait"
        f"{'s' if len(others) == 1 else ''} in {operation_of(others)}; most likely {what}.",
        where_held(case, others, odd[0]),
        [Evidence("stack", ranks, f"in {operation_of(odd)}"), Evidence("stack", [v.rank for v in others], f"in {operation_of(others)}")],
        [Alternative("in_communication", [v.rank for v in others], "the ranks do not stand in one operation")],
        "Look for a branch on the rank, or an exception that was swallowed, between these two lines. " + _COUNT_ADVICE,
    )  # fmt: skip


def _odd_one(case: Case, groups: list[list[RankView]]) -> Cause:
    """Different operations whose order cannot be told: the small group, where there is one, else everybody."""
    majority, rest = groups[0], [v for g in groups[1:] for v in g]
    clear = len(rest) * 2 < len(majority)
    odd = rest if clear else [v for g in groups for v in g]
    places = "; ".join(f"{format_ranks(v.rank for v in g)} in {operation_of(g)}" for g in groups[:4])
    return Cause(
        "order", [v.rank for v in odd], nodes_of(odd), 0.45 if clear else 0.25,
        f"{names(v.rank for v in odd)} {'is' if len(odd) == 1 else 'are'} in other operations than the rest: {places}.",
        where_held(case, majority, odd[0]),
        [Evidence("stack", [v.rank for v in g], f"in {operation_of(g)}") for g in groups],
        [Alternative("in_communication", [v.rank for v in majority], "the ranks do not stand in one operation")],
        _COUNT_ADVICE,
    )  # fmt: skip


def _unreachable(case: Case, waiting: list[RankView], unseen: list[int]) -> Cause:
    nodes = sorted({s.node for s in case.capture.silent if set(s.ranks) & set(unseen)})
    why = "; ".join(sorted({f"{s.node}: {s.why}" for s in case.capture.silent}))
    return Cause(
        "unreachable", unseen, nodes, 0.8,
        f"{names(unseen)} on {', '.join(nodes)} cannot be reached ({why}), and every captured rank waits: "
        f"{names(v.rank for v in waiting).lower()} in {operation_of(waiting)}.",
        where_held(case, waiting, None),
        [Evidence("silence", unseen, why),
         Evidence("stack", [v.rank for v in waiting], f"wait in {operation_of(waiting)}, and nobody else is outside it")],
        [Alternative("in_communication", [v.rank for v in waiting], "not all members of the operation could be seen in it")],
        f"Look at {', '.join(nodes)}: scontrol show node, ping, its console. Without it the job must be restarted.",
    )  # fmt: skip
