"""One capture of all nodes: who was asked, who answered, and what silence says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from ..errors import WireError
from ..model.capture import (
    JobCapture,
    NodeCapture,
    RankCapture,
    SilentNode,
    world_size_of,
)
from ..model.layout import Layout
from ..readers.ended_nodes import joined
from ..readers.ranks_by_node import ranks_behind
from ..text.durations import duration
from ..transport.capture_codec import Shared, name_node, unpack_capture
from ..transport.messages import Capture, Captured, Declined
from .capture_reason import CaptureReason
from .instructions import Node, Send

LARGE = 4096  # ranks; to write more of them out as JSON takes longer than to diagnose them


class Round:
    """Complete when every node that is expected to has answered, or at its deadline."""

    def __init__(
        self, id: str, reason: CaptureReason, now: float, limit_s: float, settle_s: float
    ) -> None:
        self.id = id
        self.reason = reason
        self.begun = now
        self.limit_s = limit_s
        self.settle_s = settle_s
        self.early = False  # begun on evidence: held until it is a stall
        self.captures: dict[str, NodeCapture] = {}
        self.without: dict[str, str] = {}  # node -> why it answered without a capture
        self.empty: dict[str, str] = {}  # node that has no rank any more -> what it said
        # node -> for how long nothing came from it when the round began
        self.silent_before: dict[str, float] = {}
        self._expected: set[str] = set()
        self._bodies: dict[str, bytes] = {}  # as they came, in this order
        self._shared = Shared()  # what is equal in several captures is kept once for the whole job

    def begin(
        self,
        nodes: Iterable[Node],
        now: float,
        silent_s: float,
        keep_ops: int,
        silent: Collection[str] = (),
    ) -> Iterator[Send]:
        """Ask all; answers are expected of who was heard within `silent_s` and is not `silent`."""
        wanted = Capture(self.id, self.settle_s, max(1.0, self.limit_s - 2.0), keep_ops)
        asked: set[bytes] = set()
        known = list(nodes)
        self._shared = Shared(lazy=sum(len(n.ranks) for n in known) > LARGE)
        for node in known:
            if now - node.heard > silent_s or node.left or node.name in silent:
                self.silent_before[node.name] = now - node.heard
            else:
                self._expected.add(node.name)
            if node.peer not in asked:  # a collector below asks all of its nodes
                asked.add(node.peer)
                yield Send(node.peer, wanted)

    def take(self, node: str, answer: Captured | Declined) -> str:
        """Put one answer in; returns what is worth a line in the log."""
        self.answered(node)
        if isinstance(answer, Declined):
            self.without[node] = f"its agent refused to capture: {answer.why[:200]}"
            return f"{node}: {self.without[node]}"
        if answer.no_ranks:
            self.empty[node] = answer.error[:300]
            return ""
        if answer.error or not answer.body:
            self.without[node] = answer.error[:300] or "its agent sent nothing"
            return ""
        try:
            capture = unpack_capture(answer.body, self._shared)
        except WireError as error:
            self.without[node] = str(error)
            return f"{node}: {error}"
        name_node(capture, node)
        self.captures[node] = capture
        self._bodies[node] = answer.body
        return ""

    def expects(self, node: str) -> bool:
        """Whether it was asked and has not answered."""
        return node in self._expected

    def answered(self, node: str) -> None:
        """It captures no more for this round, whatever it said."""
        self._expected.discard(node)

    @property
    def answers(self) -> int:
        """Nodes that have answered so far, with a capture or without."""
        return len(self.captures) + len(self.without) + len(self.empty)

    def complete(self, now: float) -> bool:
        """Whether all have answered of whom that is expected, or the time is over."""
        return not self._expected or now - self.begun > self.limit_s

    def join(
        self, nodes: Iterable[Node], now: float, wall: float, expected: frozenset[str] = frozenset()
    ) -> JobCapture:
        """All answers as one capture. A rank that its node no longer has is gone; a node without an
        answer is silent, and so is one of the `expected` whose agent has never connected.
        """
        known = {n.name: n for n in nodes}
        captured = [r for c in self.captures.values() for r in c.ranks]
        sizes = [n.world_size for n in known.values()] + [world_size_of(self.captures.values())]
        world = max(sizes, default=0)
        present = {r.rank for r in captured if not r.gone}
        captures, silent = self._by_node(known, present, world, now)
        silent += self._never_had_ranks(captures, known, expected, world)
        after_end = joined(captures.values()) if not silent else None
        for capture in captures.values():
            capture.ended = None
        return JobCapture(
            job=self._job(known.values()),
            nodes=[captures[n] for n in sorted(captures)],
            logs=after_end,
            over=after_end is not None,
            silent=silent,
            world_size=world,
            layout=_layout_of(captures.values()),
            settle_s=self.settle_s,
            taken=wall,
            took_s=now - self.begun,
            notes=[str(self.reason)],
            packed=self._bodies if world > LARGE else {},
        )

    def _by_node(
        self, known: Mapping[str, Node], present: set[int], world: int, now: float
    ) -> tuple[dict[str, NodeCapture], list[SilentNode]]:
        """(captures with the ranks that their nodes no longer have, nodes without an answer)."""
        captures = dict(self.captures)
        silent: list[SilentNode] = []
        for name, node in known.items():
            lost = self._lost(node, present)
            if name in captures or name in self.empty:
                self._add_gone(captures, node, lost, world)
            elif lost or not node.ranks:  # else it is no longer a node of this job
                silent.append(SilentNode(name, self._why_silent(name, node, now), lost))
        return captures, silent

    def _never_had_ranks(
        self,
        captures: dict[str, NodeCapture],
        known: Mapping[str, Node],
        expected: frozenset[str],
        world: int,
    ) -> list[SilentNode]:
        """Add the ranks of nodes that answered and have never had one; the nodes on which agents were
        started that have not connected, with the ranks behind them.
        """
        # They may call themselves otherwise than their launcher does.
        unheard = sorted(expected - known.keys()) if known.keys() <= expected else []
        empty = [n for n in self.empty if n in known and not known[n].ranks and n not in captures]
        reported = {n: sorted(r.rank for r in c.ranks) for n, c in captures.items()}
        behind: dict[str, list[int]] = {}
        if any(reported.values()):
            behind = ranks_behind(sorted({*known, *unheard}), reported, empty + unheard, world)
        for name in empty:
            if behind.get(name):
                captures[name] = self._emptied(known[name], behind[name], world)
        why = "its agent has not connected"
        return [SilentNode(name, why, behind.get(name, [])) for name in unheard]

    def _emptied(self, node: Node, ranks: list[int], world: int) -> NodeCapture:
        note = f"{node.name} answered and runs no rank: {self.empty[node.name]}"
        gone = [
            RankCapture(pid=0, rank=rank, node=node.name, world_size=world, gone=True)
            for rank in ranks
        ]
        return NodeCapture(node.name, node.job, gone, notes=[note])

    def _lost(self, node: Node, present: set[int]) -> list[int]:
        """The ranks of a node that are not in its capture, nor, started again, in another node's."""
        own = self.captures.get(node.name)
        seen = {r.rank for r in own.ranks} if own is not None else set()
        return sorted(set(node.ranks) - seen - present)

    def _job(self, known: Iterable[Node]) -> str:
        """The job that most captures are of, else that most nodes have said to run."""
        keys = [c.job for c in self.captures.values() if c.job]
        keys = keys or [n.job for n in known if n.job]
        return max(set(keys), key=keys.count) if keys else "unknown"

    def _add_gone(
        self, captures: dict[str, NodeCapture], node: Node, lost: list[int], world: int
    ) -> None:
        """Ranks that a node which answered no longer has: all of an empty one, else those that it said were over."""
        note = ""
        if node.name in self.empty:
            note = f"{node.name} answered and runs no rank: {self.empty[node.name]}"
        else:
            lost = [r for r in lost if node.ranks[r]]
        if not lost:
            if any(capture.agents for capture in self.captures.values()):
                captures.setdefault(node.name, NodeCapture(node.name))  # torchrun waits for it
            return
        capture = captures.setdefault(node.name, NodeCapture(node.name, node.job, notes=[note]))
        for rank in lost:
            gone = RankCapture(pid=0, rank=rank, node=node.name, world_size=world, gone=True)
            capture.ranks.append(gone)

    def _why_silent(self, name: str, node: Node, now: float) -> str:
        if name in self.without:
            return self.without[name]
        if node.left:
            return "its agent has left"
        if name in self.silent_before:
            return f"no message from its agent for {duration(now - node.heard)}"
        return f"its agent did not answer within {duration(now - self.begun)}"


def _layout_of(captures: Iterable[NodeCapture]) -> Layout | None:
    """The layout that the first node shows that shows one."""
    return next((capture.layout for capture in captures if capture.layout), None)
