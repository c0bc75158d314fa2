"""A job captured once more: the samples of both captures, as one capture."""

from __future__ import annotations

from msgspec import structs

from ..model.capture import JobCapture, NodeCapture, RankCapture
from ..text.ranges import number_in

# A clock that is stepped moves the start of a process by less, or the number is of another one.
_SAME_START_S = 1.0


def join_captures(first: JobCapture, later: JobCapture, apart_s: float) -> JobCapture:
    """What `later` shows, measured against what `first` saw; `apart_s`: seconds between the
    beginnings of the two.

    A process of `first` that `later` no longer has is kept as gone. One that is new stays as
    `later` has it.
    """
    seen = max((len(r.samples) for r in first.ranks()), default=0)
    before = {(r.node, r.pid): r for r in first.ranks()}
    for rank in later.ranks():
        earlier = before.get((rank.node, rank.pid))
        if earlier is not None and abs(rank.started - earlier.started) < _SAME_START_S:
            del before[(rank.node, rank.pid)]
            _join(rank, earlier, apart_s)
    silent = {s.node for s in later.silent}
    _keep_the_gone(later, [r for r in before.values() if r.node not in silent])
    raw = {n.node: n.raw for n in first.nodes}
    for node in later.nodes:
        node.raw = {
            **raw.get(node.node, {}),
            **{_later_name(name, seen): text for name, text in node.raw.items()},
        }
    later.settle_s = round(apart_s + later.settle_s, 1)
    later.took_s += apart_s
    return later


def _join(rank: RankCapture, earlier: RankCapture, apart_s: float) -> None:
    later = [structs.replace(s, at_s=s.at_s + apart_s) for s in rank.samples]
    rank.samples = earlier.samples + later
    if rank.ops is not None:
        rank.ops_before = earlier.ops_before or earlier.ops
    if rank.recorded is not None:
        rank.recorded_before = earlier.recorded_before or earlier.recorded


def _keep_the_gone(later: JobCapture, ended: list[RankCapture]) -> None:
    """Ranks that ended between the looks; one that has a new process meanwhile is left out."""
    there = {r.rank for r in later.ranks()}
    for rank in ended:
        if rank.rank in there:
            continue
        rank.gone = True
        node = next((n for n in later.nodes if n.node == rank.node), None)
        if node is None:
            later.nodes.append(NodeCapture(rank.node, later.job, [rank]))
        else:
            node.ranks.append(rank)


def _later_name(name: str, seen: int) -> str:
    """Raw output after two samples: ``PID.1.json`` becomes ``PID.3.json``."""
    pid, _, rest = name.partition(".")
    number, _, ending = rest.partition(".")
    at = number_in(number)
    return f"{pid}.{at + seen}.{ending}" if at >= 0 else name
