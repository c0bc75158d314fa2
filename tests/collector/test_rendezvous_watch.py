"""torchrun that waits for nodes: the collector captures, although no rank is there."""

from __future__ import annotations

from hangdoctor.collector.capture_reason import Trigger
from hangdoctor.collector.captures import Captures
from hangdoctor.collector.instructions import Counters, Log, Node, Settings
from hangdoctor.collector.rendezvous_watch import RendezvousWatch
from hangdoctor.model.capture import NodeCapture, RankCapture
from hangdoctor.watch.stall_watch import Settings as StallSettings
from hangdoctor.watch.stall_watch import StallWatch


def node(name: str, waits_s: float = 0.0) -> Node:
    return Node(name, b"p", "a", heard=0.0, waits_s=waits_s)


def test_it_is_told_once_and_again_after_ranks_have_run() -> None:
    watch = RendezvousWatch(300.0)
    assert not watch.tick([node("n1", 299.0), node("n2")], 0)
    assert watch.tick([node("n1", 301.0)], 0).endswith("waiting for nodes for 5 min")
    assert not watch.tick([node("n1", 400.0)], 0)
    assert not watch.tick([node("n1", 400.0)], 8)
    assert watch.tick([node("n1", 300.0)], 0)
    gone = node("n1", 400.0)
    gone.left = True
    assert not RendezvousWatch(1.0).tick([gone], 0)


def test_a_capture_names_the_nodes_that_were_never_heard_and_those_without_ranks() -> None:
    nodes = {name: node(name) for name in ("n1", "n2")}
    settings = Settings(expected=frozenset({"n1", "n2", "n3"}))
    captures = Captures(settings, StallWatch(StallSettings()), Counters(), nodes=nodes, session="c")
    said = captures.unstarted("no rank has been started", 1.0)
    assert isinstance(said[0], Log) and captures.round is not None
    assert captures.round.reason.trigger is Trigger.START
    ranks = [RankCapture(pid=1, rank=r, node="n1", world_size=6) for r in (0, 1)]
    captures.round.captures["n1"] = NodeCapture("n1", "j", ranks)
    captures.round.empty["n2"] = "nothing looks like a rank"
    job = captures._joined(captures.round, 2.0, 2.0)
    assert [(s.node, s.ranks) for s in job.silent] == [("n3", [4, 5])]
    assert [(r.rank, r.node, r.gone) for r in job.ranks()[2:]] == [(2, "n2", True), (3, "n2", True)]
