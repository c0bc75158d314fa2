"""Verdicts on the ends of the stacks' wait-for graph: an operation that all have entered, or a ring of waits.

In a ring, somebody waits in an operation that another member has left behind. Who is in the minority there left the
program. Where as many have left it as wait in it, nothing tells who did, and both sides are named as one set.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from ..model import Alternative, Cause, Evidence, Frame, Kind
from ..ranges import format_ranks
from . import stackgraph
from .case import Case, names, nodes_of, operation_of, where_held, who
from .position import compare, counters, program
from .stackgraph import End, Instance, StackGraph
from .view import RankView

ADVICE = (
    "Stacks cannot count operations. Started with `hangdoctor run -- CMD`, or with TORCH_FR_BUFFER_SIZE=2000 and its dumps, "
    "the next hang tells which rank skipped one."
)


class Odd(Struct):
    """Ranks that left the program, by one reading of a ring."""

    kind: Kind
    ranks: list[int]
    instead: list[int]  # who they are told from
    why: str
    confidence: float
    or_else: list[int] = []  # who it may be as well: stacks do not tell the two sides apart


def find(case: Case, waiting: list[RankView]) -> list[Cause]:
    """One cause for each end of the waits that can be read; [] where the members of operations are not known."""
    graph = stackgraph.build(case, waiting)
    views = {v.rank: v for v in waiting}
    causes: list[Cause] = []
    for end in stackgraph.ends(graph):
        if not end.instances:
            continue  # a rank that waits for something without known members
        if not end.ranks and end.instances[0].absent:
            causes.append(_apart(case, end.instances[0], views))
        elif not end.ranks:
            causes.append(_full(case, end.instances[0], views))
        elif all(r in views for r in end.ranks):
            causes.append(_ring(case, graph, end, views))
    return causes


def _apart(case: Case, instance: Instance, views: dict[int, RankView]) -> Cause:
    """An operation whose other members wait in something else, for whom their stacks do not tell."""
    here, there = [r for r in instance.present if r in views], [r for r in instance.absent if r in views]
    if len(here) == len(there):
        both = sorted(here + there)
        return _cause(case, Odd("order", both, [], "they wait in two operations, and nothing tells which is wrong", 0.3), views)
    few, many = sorted((here, there), key=len)
    return _cause(case, Odd("order", few, many, "in another operation than most", 0.45), views)


def _full(case: Case, instance: Instance, views: dict[int, RankView]) -> Cause:
    held = [views[r] for r in instance.members]
    roots = {v.rank: root for v in held if (root := _root(v)) is not None}
    if len(set(roots.values())) > 1:
        common = Counter(roots.values()).most_common(2)
        clear = common[0][1] > common[1][1]
        odd = [views[r] for r in sorted(roots) if not clear or roots[r] != common[0][0]]
        said = "; ".join(f"rank {r}: {root}" for r, root in sorted(roots.items()))
        return _cause(
            case, Odd("mismatch", [v.rank for v in odd], instance.members, f"they name different roots ({said})", 0.7), views
        )
    ranks = [v.rank for v in held]
    others = sorted(set(views) - set(ranks))
    sentence = f"All members ({format_ranks(ranks)}) stand in the same {operation_of(held)} and it does not finish"
    sentence += f"; {names(others).lower()} wait{'s' if len(others) == 1 else ''} behind them" if others else ""
    return Cause(
        "in_communication", ranks, nodes_of(held), 0.5,
        sentence + ": network, NCCL or a GPU, or one of them counts one operation more or less than the others.",
        where_held(case, held, held[0]), [Evidence("stack", ranks, f"stand in {operation_of(held)}")],
        [Alternative("order", ranks, "stacks cannot count operations: a rank that skipped one would look the same")],
        f"Check links and GPUs of {', '.join(nodes_of(held)) or 'these ranks'} (ibstat, nvidia-smi -q, dmesg for Xid). " + ADVICE,
    )  # fmt: skip


def _root(view: RankView) -> int | None:
    """The root that a rank's call names; only its own frames in the library say it."""
    names_of_root = {"broadcast": "src", "scatter": "src", "reduce": "dst", "gather": "dst"}
    name = names_of_root.get(view.place.op)
    if name is None:
        return None
    return next((f.values[name] for f in reversed(view.path) if f.name.endswith(view.place.op) and name in f.values), None)


def _ring(case: Case, graph: StackGraph, end: End, views: dict[int, RankView]) -> Cause:
    for read in (_other_group, _other_way, _passed, _minority):
        odd = read(case, graph, end, views)
        if odd is not None:
            return _cause(case, odd, views)
    ring = sorted(end.ranks)
    p2p = all(views[r].place.kind == "p2p" for r in ring)
    return _cause(case, Odd("p2p_unmatched" if p2p else "order", ring, [], "they wait for one another in a ring", 0.3), views)


def _other_group(case: Case, graph: StackGraph, end: End, views: dict[int, RankView]) -> Odd | None:
    """Ranks at the very call that others wait in, on another group."""
    for instance in end.instances:
        here = stackgraph.operation_of(views[instance.present[0]])
        strange = [r for r in instance.absent if r in views and stackgraph.operation_of(views[r]) == here]
        if strange and len(strange) < len(instance.present):
            return Odd("mismatch", strange, instance.present, "the same call on another group", 0.65)
    return None


def _other_way(case: Case, graph: StackGraph, end: End, views: dict[int, RankView]) -> Odd | None:
    """A rank that came to an operation by other lines than all others in it: it took another branch."""
    for instance in end.instances:
        ways = Counter(_way(views[r]) for r in instance.present)
        (usual, count), *rest = ways.most_common()
        if count < 3 or not rest or sum(n for _, n in rest) * 3 > count:
            continue
        odd = [r for r in instance.present if _way(views[r]) != usual and r in end.ranks]
        if odd:
            return Odd(
                "order",
                odd,
                [r for r in instance.present if r not in odd],
                "they came to it by other lines of the program",
                0.6,
            )
    return None


def _way(view: RankView) -> tuple[tuple[str, str, int], ...]:
    return tuple((f.name, f.file, f.line) for f in program(view.path))


def _passed(case: Case, graph: StackGraph, end: End, views: dict[int, RankView]) -> Odd | None:
    """Of an operation that some wait in and others have left behind, the smaller side; the narrowest operation speaks."""
    best: Odd | None = None
    size = 0
    if case.capture.layout is None and any(i.key[0] == "transfer" for i in end.instances):
        return None  # stages of a pipeline run different branches: the order of their lines says nothing
    for instance in sorted(end.instances, key=lambda i: len(i.members)):
        behind = [views[r] for r in instance.present]
        ahead = [r for r in instance.absent if r in end.ranks and is_ahead(case, views[r], behind[0], views)]
        if not ahead or (best is not None and len(instance.members) > size):
            continue
        kind: Kind = "p2p_unmatched" if instance.key[0] == "transfer" else "order"
        present = sorted(instance.present)
        if len(present) < len(ahead):
            found = Odd("order", present, ahead, "most members have left this operation behind", 0.55)
        elif len(present) == len(ahead) and kind == "order":
            found = Odd(kind, sorted(ahead), [], "", 0.45, present)
        else:
            found = Odd(kind, sorted(ahead), present, "past an operation that others still wait in with it", 0.55)
        if best is None or found.confidence > best.confidence:
            best, size = found, len(instance.members)
    return best


def is_ahead(case: Case, view: RankView, other: RankView, views: dict[int, RankView]) -> bool:
    """Whether `view` is further in the program than `other`.

    Stages of a pipeline run different branches, so that the order of two lines says something only where somebody of the
    one's stage stands on the other's line.
    """
    order = compare(other.path, view.path)
    if order is None or order >= 0:
        return False
    layout = case.capture.layout
    if layout is None or layout.pp == 1:
        return True
    stage = {r: layout.coordinates(r)["pp"] for r in (view.rank, other.rank)}
    if stage[view.rank] == stage[other.rank]:
        return True
    for depth, (a, b) in enumerate(zip(program(view.path), program(other.path), strict=False)):
        if counters([a]) != counters([b]):
            return True
        if a.line != b.line:
            theirs = [v for v in views.values() if layout.coordinates(v.rank)["pp"] == stage[other.rank]]
            mine = [v for v in views.values() if layout.coordinates(v.rank)["pp"] == stage[view.rank]]
            return _on_line(theirs, depth, a) or _on_line(mine, depth, b)
    return False


def _on_line(some: list[RankView], depth: int, frame: Frame) -> bool:
    """Whether one of them stands on the frame's line."""
    at = [program(v.path)[depth : depth + 1] for v in some]
    return any((f.name, f.file, f.line) == (frame.name, frame.file, frame.line) for path in at for f in path)


def _minority(case: Case, graph: StackGraph, end: End, views: dict[int, RankView]) -> Odd | None:
    """Without an order: the few that are not at an operation that most of its members wait in."""
    for instance in sorted(end.instances, key=lambda i: -len(i.present)):
        absent = [r for r in instance.absent if r in end.ranks]
        if absent and 2 * len(absent) < len(instance.present):
            return Odd("order", absent, instance.present, "in another operation than most members of this one", 0.5)
    return None


def _either(case: Case, odd: Odd, views: dict[int, RankView]) -> Cause:
    """One of two sides left the program; calls are left out more often than made twice, but that is no evidence."""
    ahead, behind = [views[r] for r in odd.ranks], [views[r] for r in odd.or_else]
    one, other = names(odd.ranks), names(odd.or_else).lower()
    waits = "waits" if len(behind) == 1 else "wait"
    summary = (
        f"{one} or {other} left the program: {who(ahead)} {'is' if len(ahead) == 1 else 'are'} in {operation_of(ahead)}, past "
        f"{operation_of(behind)}, in which {who(behind).lower()} {waits}. Either {one.lower()} left that call out, which is likelier, or {other} made one "
        f"that is not {'its' if len(behind) == 1 else 'theirs'}; stacks cannot tell which."
    )
    evidence = [Evidence("stack", [v.rank], f"in {operation_of([v])}") for v in (ahead + behind)[:8]]
    return Cause(
        odd.kind, sorted(odd.ranks + odd.or_else), nodes_of(ahead + behind), odd.confidence, summary,
        where_held(case, behind, ahead[0]), evidence, [],
        "Compare the program of the two between these two lines: a branch, or an exception that was swallowed. " + ADVICE,
    )  # fmt: skip


def _cause(case: Case, odd: Odd, views: dict[int, RankView]) -> Cause:
    if odd.or_else:
        return _either(case, odd, views)
    mine, rest = [views[r] for r in odd.ranks], [views[r] for r in odd.instead if r in views and r not in odd.ranks]
    is_are = "is" if len(mine) == 1 else "are"
    summary = f"{who(mine)} {is_are} in {operation_of(mine)}"
    if rest:
        summary += f" while {names(v.rank for v in rest).lower()} wait{'s' if len(rest) == 1 else ''} in {operation_of(rest)}"
    evidence = [Evidence("stack", [v.rank], f"in {operation_of([v])}") for v in (mine + rest)[:8]]
    return Cause(
        odd.kind, odd.ranks, nodes_of(mine), odd.confidence, f"{summary}: {odd.why}.", where_held(case, rest or mine, mine[0]),
        evidence, [], "Look for a branch on the rank, or an exception that was swallowed, between these two lines. " + ADVICE,
    )  # fmt: skip
