"""A tree of collectors: its core without sockets, then as real processes with agents below."""

from __future__ import annotations

import signal

import msgspec
import pytest

from hangdoctor.collector.core import Core
from hangdoctor.collector.instructions import Conclude, Instruction, Position, Send, Settings
from hangdoctor.collector.relay import Relay
from hangdoctor.model.capture import NodeCapture, RankCapture
from hangdoctor.storage import bundle
from hangdoctor.storage.incidents import Incidents
from hangdoctor.transport import capture_codec
from hangdoctor.transport import messages as msg
from hangdoctor.watch.stall_watch import Settings as Bounds
from hangdoctor.watch.stall_watch import StallWatch
from tests.support.sidecar_stage import Job, Start
from tests.support.stage import wait_until


class Tree:
    """One collector, two below it with two nodes each; what is sent is carried by hand, the way up
    by `lift`.
    """

    def __init__(self) -> None:
        self.now = 100.0
        self.root = Core(Settings(), StallWatch(Bounds(stall_after_s=10)))
        self.spools: dict[str, list[msg.Relayed]] = {"r0": [], "r1": []}
        self.answers: dict[str, list[msg.FromAgent]] = {"r0": [], "r1": []}
        self.relays = {
            n: Relay(Settings(), None, self.spools[n].append, self._sender(n)) for n in self.spools
        }
        self.seq: dict[str, int] = {}
        for name in self.relays:
            self.to_root(name, msg.Hello(f"a-{name}", name, relay=True))

    def _sender(self, name: str):  # type: ignore[no-untyped-def]
        def send(message: msg.FromAgent) -> bool:
            self.answers[name].append(message)
            return True

        return send

    def to_root(self, name: str, message: msg.FromAgent) -> list[Instruction]:
        return self.root.received(name.encode(), msg.encode(message), self.now, 0.0)

    def agent(self, relay: str, node: str, *ranks: int, idle: float = 0.0) -> None:
        """One report of a node below a relay."""
        core = self.relays[relay]
        if node not in core.nodes:
            core.received(
                node.encode(),
                msg.encode(msg.Hello(f"a-{node}", node, "slurm:7.0", 8)),
                self.now,
                0.0,
            )
        self.seq[node] = self.seq.get(node, 0) + 1
        told = [msg.RankNow(r, idle_s=idle, box=True) for r in ranks]
        core.received(
            node.encode(),
            msg.encode(msg.Report(self.seq[node], 1, 0.0, told, timeout_s=600.0)),
            self.now,
            0.0,
        )

    def lift(self) -> list[Instruction]:
        """The relays' ticks, and their reports to the root."""
        out: list[Instruction] = []
        for name, core in self.relays.items():
            core.tick(self.now, 0.0)
            while self.spools[name]:
                self.seq[name] = self.seq.get(name, 0) + 1
                report = self.spools[name].pop(0)
                report.seq, report.oldest = self.seq[name], 1
                out += self.to_root(name, report)
        return out


def captures(out: list[Instruction]) -> list[Send]:
    return [i for i in out if isinstance(i, Send) and isinstance(i.message, msg.Capture)]


def test_changes_go_up_merged_and_captures_down_and_answers_up_again() -> None:
    tree = Tree()
    nodes = {"n0": ("r0", 0, 1), "n1": ("r0", 2, 3), "n2": ("r1", 4, 5), "n3": ("r1", 6, 7)}
    for node, (relay, *ranks) in nodes.items():
        tree.agent(relay, node, *ranks)
    tree.lift()
    assert {n: (v.via, sorted(v.ranks), v.world_size) for n, v in tree.root.nodes.items()} == {
        n: (r, list(ranks), 8) for n, (r, *ranks) in nodes.items()
    }
    assert tree.root.watchdog.ranks == 8 and tree.root.counters.reports == 2
    asked: list[Send] = []
    for _ in range(30):
        tree.now += 1.0
        asked = captures(tree.root.tick(tree.now, 0.0))
        if asked:
            break
        for node, (relay, *_) in nodes.items():
            if node != "n3":  # its agent is gone
                tree.agent(relay, node)
        tree.lift()
    assert sorted(s.peer for s in asked) == [
        b"r0",
        b"r1",
    ]  # one each, however many nodes are behind
    wanted = asked[0].message
    assert isinstance(wanted, msg.Capture)
    below = {n: captures(core.told(wanted, tree.now)) for n, core in tree.relays.items()}
    assert sorted(s.peer for s in [*below["r0"], *below["r1"]]) == [b"n0", b"n1", b"n2", b"n3"]
    assert all(s.message.timeout_s < wanted.timeout_s for s in below["r0"])  # type: ignore[union-attr]
    for node, (relay, *ranks) in list(nodes.items())[:3]:
        body = capture_codec.pack_capture(
            NodeCapture("?", "slurm:7.0", [RankCapture(pid=9, rank=r, world_size=8) for r in ranks])
        )
        answer = msg.encode(msg.Captured(wanted.id, body))
        assert tree.relays[relay].received(node.encode(), answer, tree.now, 0.0) == []
    done = [
        i
        for n in tree.relays
        for a in tree.answers[n]
        for i in tree.to_root(n, a)
        if isinstance(i, Conclude)
    ]
    assert [n.node for n in done[0].capture.nodes] == ["n0", "n1", "n2"]
    assert [(s.node, s.ranks) for s in done[0].capture.silent] == [("n3", [6, 7])]
    assert "no message from its agent" in done[0].capture.silent[0].why


def test_a_collector_in_between_speaks_for_its_own_nodes_only() -> None:
    tree = Tree()
    tree.agent("r0", "n0", 0, 1)
    tree.agent("r1", "n2", 4, 5)
    tree.lift()
    stolen = msg.Relayed(2, 1, [msg.NodeNews("n0", left=True), msg.NodeNews("r0")])
    tree.seq["r1"] = 2
    tree.to_root("r1", stolen)
    assert (
        tree.root.nodes["n0"].via == "r0"
        and not tree.root.nodes["n0"].left
        and "r0" not in tree.root.nodes
    )
    before = tree.root.counters.reports
    tree.to_root(
        "r0", msg.Report(2, 1, 0.0, [msg.RankNow(0)])
    )  # an agent's report from a collector
    assert tree.root.counters.reports == before


def test_a_second_capture_takes_the_place_of_the_first() -> None:
    """The one above asks for one at a time: of the first it wants nothing any more."""
    tree = Tree()
    tree.agent("r0", "n0", 0, 1)
    core = tree.relays["r0"]
    core.told(msg.Capture("c1"), tree.now)
    told = core.told(msg.Capture("c2"), tree.now)
    assert [(i.peer, i.message.id) for i in told] == [(b"n0", "c2")]
    core.received(b"n0", msg.encode(msg.Captured("c1", b"old")), tree.now, 0.0)
    core.received(b"n0", msg.encode(msg.Captured("c2", b"new")), tree.now, 0.0)
    assert [(a.id, a.body, a.node) for a in tree.answers["r0"]] == [("c2", b"new", "n0")]


def test_a_collector_in_between_may_answer_for_thousands_of_nodes_at_once() -> None:
    """More messages than any other peer may send."""
    root = Core(Settings(burst=500.0), StallWatch(Bounds(stall_after_s=10)))
    names = [f"n{n}" for n in range(1200)]

    def say(message: msg.FromAgent, now: float) -> list[Instruction]:
        return root.received(b"r0", msg.encode(message), now, 0.0)

    say(msg.Hello("a-r0", "r0", relay=True), 100.0)
    ranks = [[msg.RankNow(n, box=True)] for n in range(1200)]
    news = [msg.NodeNews(n, "slurm:7.0", 1200, ranks=r) for n, r in zip(names, ranks, strict=True)]
    say(msg.Relayed(1, 1, news), 100.0)
    root.ask("a person")
    [asked] = [i for i in root.tick(101.0, 0.0) if isinstance(i, Send) and i.peer == b"r0"]
    assert isinstance(asked.message, msg.Capture)
    out: list[Instruction] = []
    for number, name in enumerate(names):
        rank = RankCapture(pid=1, rank=number, world_size=1200)
        body = capture_codec.pack_capture(NodeCapture(name, "slurm:7.0", [rank]))
        out += say(msg.Captured(asked.message.id, body, node=name), 101.0)
    [done] = [i for i in out if isinstance(i, Conclude)]
    assert len(done.capture.nodes) == 1200 and root.counters.cut_off == 0


def test_a_node_that_does_not_answer_in_time_is_given_up() -> None:
    tree = Tree()
    tree.agent("r0", "n0", 0, 1)
    core = tree.relays["r0"]
    core.told(msg.Capture("c1"), tree.now)
    tree.now += 30
    core.tick(tree.now, 0.0)
    late = tree.answers["r0"][-1]
    assert isinstance(late, msg.Captured) and late.node == "n0" and "in time" in late.error


def test_a_parent_that_was_restarted_learns_of_ranks_that_do_not_move_too() -> None:
    tree = Tree()
    tree.agent("r0", "n0", 0, 1)
    tree.lift()
    tree.agent("r0", "n0", 1, idle=1.0)
    tree.now += 5.0
    tree.relays["r0"].tell_all()
    tree.lift()
    known = tree.root.nodes["n0"].ranks
    known.clear()
    tree.agent("r0", "n0")
    tree.now += 5.0
    tree.lift()
    assert known == {}  # as always: only what changes
    tree.relays["r0"].tell_all()
    tree.relays["r0"].tick(tree.now, 0.0)
    [report] = tree.spools["r0"]
    assert [(r.rank, r.idle_s) for r in report.nodes[0].ranks] == [(0, 10.0), (1, 11.0)]
    assert report.nodes[0].timeout_s == 600.0


def test_ages_are_those_of_the_node_whatever_the_way_takes() -> None:
    tree = Tree()
    tree.agent("r0", "n0", 0, idle=5.0)
    tree.now += 3.0
    core = tree.relays["r0"]
    core.tick(tree.now, 0.0)
    [report] = tree.spools["r0"]
    assert [(r.rank, r.idle_s) for r in report.nodes[0].ranks] == [(0, 8.0)]
    assert report.nodes[0].timeout_s == 600.0


@pytest.mark.timeout(280)
def test_a_tree_of_processes_captures_and_loses_nothing_when_its_middle_or_its_top_restarts(
    job: Job, start: Start
) -> None:
    root = job.collector("--stall-after", "3600")
    for i, (node, via) in enumerate((("na", "r0"), ("nb", "r0"), ("nc", "r1"))):
        job.rank(i, "tree-test")
        job.agent(node, "tree-test", "--via", via)
    relays = {n: job.relay(n) for n in ("r0", "r1")}
    wait_until(
        lambda: job.said("collector", "its agent has connected through") == 3,
        "three nodes behind two collectors",
        60,
    )
    relays["r0"].kill()
    relays["r0"].wait()
    root.kill()
    root.wait()
    # A collector keeps positions only now and then: it may not have kept any so far.
    wait_until(lambda: "nc" in job.positions("relays/r1"), "r1 has kept where nc is")
    received = {n: p.seq for n, p in job.positions("relays/r1").items()}
    wait_until(
        lambda: job.positions("relays/r1")["nc"].seq > received["nc"] + 2,
        "r1 goes on keeping while the first is away",
    )
    relays["r0"] = job.relay("r0")
    root = job.collector("--stall-after", "3600")
    wait_until(
        lambda: job.said("collector", "its agent has connected through") == 6, "all are back", 60
    )
    wait_until(
        lambda: job.said("r0", "its agent has connected") == 4,
        "also below r0: what it said so far was from its spool",
    )
    wait_until(lambda: "r0" in job.positions(), "the first collector has kept where r0 is")
    kept = job.positions()["r0"].seq
    wait_until(lambda: job.positions()["r0"].seq > kept + 2, "the first collector has heard so")
    seen: list[tuple[str, list[int]]] = []
    for so_far in range(3):  # on a busy machine a node may answer after the deadline
        root.send_signal(signal.SIGUSR1)
        wait_until(lambda: len(rows(job)) == so_far + 1, "the capture is kept", 60)  # noqa: B023
        captures = [bundle.load(job.folder / "incidents" / row) for row in rows(job)]
        last = max(captures, key=lambda capture: len(capture.nodes))
        seen = sorted((n.node, [r.rank for r in n.ranks]) for n in last.nodes)
        if len(seen) == 3:
            break
    assert seen == [("na", [0, 1, 2]), ("nb", [0, 1, 2]), ("nc", [0, 1, 2])]
    for process in (*relays.values(), root):
        process.terminate()
        assert process.wait(timeout=20) == 0
    for folder in ("", "relays/r0", "relays/r1"):
        for position in job.positions(folder).values():
            assert (position.received, position.lost) == (position.seq, 0), folder


def rows(job: Job) -> list[str]:
    return [r.id for r in Incidents(job.folder).rows() if r.state == "saved"]


def test_positions_of_a_relay_outlive_it() -> None:
    kept = msgspec.json.encode({"a-n0": Position("n0", 7, 7)})
    core = Relay(
        Settings(),
        msgspec.json.decode(kept, type=dict[str, Position]),
        lambda r: None,
        lambda m: True,
    )
    [welcome] = core.received(b"n0", msg.encode(msg.Hello("a-n0", "n0")), 1.0, 0.0)[:1]
    assert isinstance(welcome, Send) and welcome.message == msg.Welcome(7, 1.0)
