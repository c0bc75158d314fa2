"""The wait-for graph as far as stacks tell it: in which operation a rank is, and who its members
are.

A send or receive names its peer in its local variables; a call without a process group is the
world's; of another one the members follow from the layout, once the call, its file or its functions
say along which axis it communicates. Ranks are in one operation where the call, its line and the
loop counters agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from ..model.capture import Frame
from ..model.layout import Layout
from ..stacks.place_rules import Place
from ..stacks.place_search import BUFFERS, GRADIENTS, STORE, sends
from ..text.late import late
from .case import Case
from .ops.components import components, sinks
from .position import counts, steps
from .view import RankView

_AXIS_WORDS = {
    "tp": late(
        r"tensor_?(model_)?parallel|model_parallel|row_?parallel|column_?parallel|(?<![a-z])(tp|mp)(?![a-z])",
        re.I,
    ),
    "dp": late(r"data_?parallel|(?<![a-z])dp(?![a-z])|allreduce_bucket|reduce_scatter_grad", re.I),
    "pp": late(r"pipe(line)?_?(model_)?parallel|(?<![a-z])pp(?![a-z])|pipe_?(stage|module)", re.I),
}
_NEAR = 4  # frames of the program around a call that may name its axis


class StackOperation(Struct, frozen=True):
    """Equal on ranks that are in one operation: call, line and loop counters agree."""

    kind: str
    op: str
    at: tuple[tuple[str, str, int], ...]
    counts: tuple[tuple[str, int], ...]


class Collective(Struct, frozen=True):
    """An operation of these members."""

    operation: StackOperation
    members: tuple[int, ...]


class Transfer(Struct, frozen=True):
    """A send and its receive: the two are on different lines, and the direction makes them one
    operation.
    """

    source: int
    destination: int


class Instance(Struct):
    """One operation as stacks show it."""

    key: Collective | Transfer
    members: list[int]
    present: list[int]
    absent: list[int]


class StackGraph(Struct):
    """Operations, and which of them each rank waits in."""

    instances: list[Instance]
    waits_in: dict[int, list[int]]
    unplaced: list[int]  # ranks that wait in something with unknown members


class End(Struct):
    """Where waits end: ranks and operations that nothing leads out of."""

    ranks: list[int]
    instances: list[Instance]


def build(case: Case, waiting: Iterable[RankView]) -> StackGraph:
    """The graph over ranks that wait; all others of the job are simply not at the operation."""
    views = {v.rank: v for v in waiting}
    graph = StackGraph([], {}, [])
    index: dict[Collective | Transfer, int] = {}
    for rank, view in views.items():
        members = members_of(case, view)
        if len(members) < 2:
            graph.unplaced.append(rank)
            continue
        key = _instance_key(view, members)
        at = index.get(key)
        if at is None:
            at = index[key] = len(graph.instances)
            graph.instances.append(Instance(key, members, [], []))
        graph.instances[at].present.append(rank)
        graph.waits_in[rank] = [at]
    for instance in graph.instances:
        instance.absent = [r for r in instance.members if r not in instance.present]
    return graph


def operation_of(view: RankView) -> StackOperation:
    """The operation that a rank is in, as its stack shows it."""
    place = view.place
    return StackOperation(place.kind, place.op, place.at, counts(view))


def _instance_key(view: RankView, members: list[int]) -> Collective | Transfer:
    place = view.place
    if place.kind != "p2p" or place.peer < 0:
        return Collective(operation_of(view), tuple(members))
    if sends(place.op):
        return Transfer(view.rank, place.peer)
    return Transfer(place.peer, view.rank)


def members_of(case: Case, view: RankView) -> list[int]:
    """Members of the operation that a rank is in; [] where nothing shows them."""
    place, world = view.place, case.world_size
    if place.kind == "p2p":
        return sorted({view.rank, place.peer}) if 0 <= place.peer < world else []
    if place.op == STORE or place.kind not in ("start", "end", "collective"):
        return []
    layout = case.capture.layout
    if _of_whole_job(place, layout):
        return list(range(world))
    if layout is None or layout.world_size != world:
        return []
    axis = place.group if place.group in _AXIS_WORDS else axis_of(view)
    if axis:
        return layout.group(axis, view.rank)
    return _only_choice(layout, view.rank) if place.group == "sub" else []


def _of_whole_job(place: Place, layout: Layout | None) -> bool:
    if place.group == "world":
        return True
    if place.kind in ("start", "end") and not place.group:
        return True
    # DistributedDataParallel alone: it reduces over all ranks.
    return layout is None and place.op in (GRADIENTS, BUFFERS)


def axis_of(view: RankView) -> str:
    """The axis that the call's line, its function or its file names, the nearest first; "" where
    none or several do.
    """
    for frame in reversed(_around_call(view)):
        folder_and_file = "/".join(frame.file.split("/")[-2:])
        for text in (frame.code, frame.name, folder_and_file):
            named = [axis for axis, words in _AXIS_WORDS.items() if words.search(text)]
            if len(named) == 1:
                return named[0]
            if named:
                break  # a line that names two axes says nothing, but the function around it may
    return ""


def _around_call(view: RankView) -> list[Frame]:
    """The frames of the program that may name the axis of the call, outermost first."""
    path = steps(view)
    call = len(path) - 1
    for at in range(len(path) - 1, -1, -1):
        if path[at] is view.place.caller or path[at] == view.place.caller:
            call = at
            break
    return path[max(0, call - _NEAR + 1) : call + 1]


def _only_choice(layout: Layout, rank: int) -> list[int]:
    groups = [g for axis in _AXIS_WORDS if len(g := layout.group(axis, rank)) > 1]
    return groups[0] if len(groups) == 1 else []


def ends(graph: StackGraph) -> list[End]:
    """Where waits end. A rank whose operation has no known members ends nothing: it waits too, only
    for which rank, is unknown.

    What waits for such a rank alone is left out with it, unless nothing else is left.
    """
    return [e for e in _sinks(graph, graph.unplaced) if e.instances] or _sinks(graph, [])


def _sinks(graph: StackGraph, without: list[int]) -> list[End]:
    """Sinks of the condensed graph (`components`), each with its ranks and operations."""
    absent = {r for i in graph.instances for r in i.absent}
    concerned = {*graph.waits_in, *graph.unplaced, *absent}
    ranks = sorted(concerned - set(without))
    # Nodes of the graph: first all ranks, then all operations.
    first = len(ranks)
    number = {rank: n for n, rank in enumerate(ranks)}
    edges = [[first + at for at in graph.waits_in.get(rank, ())] for rank in ranks]
    edges += [[number[r] for r in i.absent if r in number] for i in graph.instances]
    found = []
    for nodes in sinks(edges, components(edges)):
        inside = [ranks[n] for n in nodes if n < first]
        operations = [graph.instances[n - first] for n in nodes if n >= first]
        found.append(End(inside, operations))
    return found
