"""One capture of all nodes: who was asked, who answered, and what silence says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from ..errors import WireError
from ..model.capture import JobCapture, NodeCapture, RankCapture, SilentNode
from ..transport.capture_codec import Shared, name_node, unpack_capture
from ..transport.messages import Capture, Captured, Declined
from .instructions import Node, Send

LARGE = 4096  # ranks; to write more of them out as JSON takes longer than to diagnose them


class Round:
    """Complete when every node that is expected to has answered, or at its deadline."""

    def __init__(self, id: str, reason: str, now: float, limit_s: float, settle_s: float) -> None:
        self.id = id
        self.reason = reason
        self.begun = now
        self.limit_s = limit_s
        self.settle_s = settle_s
        self.early = False  # begun on evidence: held until it is a stall
        self.captures: dict[str, NodeCapture] = {}
        self.without: dict[str, str] = {}  # node -> why it answered without a capture
        self.empty: dict[
            str, str
        ] = {}  # node that answered and has no rank any more -> what it said
        self.silent_before: dict[
            str, float
        ] = {}  # node -> for how long nothing came from it when the round began
        self._expected: set[str] = set()
        self._bodies: dict[str, bytes] = {}  # as they came, in this order
        self._shared = Shared()  # what is equal in several captures is kept once for the whole job

    @property
    def is_stall(self) -> bool:
        return self.reason.startswith("stall")

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
        for node in nodes:
            if now - node.heard > silent_s or node.left or node.name in silent:
                self.silent_before[node.name] = now - node.heard
            else:
                self._expected.add(node.name)
            if node.peer not in asked:  # a collector below asks all of its nodes
                asked.add(node.peer)
                yield Send(node.peer, wanted)

    def take(self, node: str, answer: Captured | Declined) -> str:
        """Put one answer in; returns what is worth a line in the log."""
        self._expected.discard(node)
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

    def complete(self, now: float) -> bool:
        return not self._expected or now - self.begun > self.limit_s

    def join(self, nodes: Iterable[Node], now: float, wall: float) -> JobCapture:
        """All answers as one capture. A rank that its node no longer has is gone; a node without an answer is silent."""
        known = {n.name: n for n in nodes}
        world = max(
            [r.world_size for c in self.captures.values() for r in c.ranks]
            + [n.world_size for n in known.values()]
            + [0]
        )
        captures = dict(self.captures)
        present = {r.rank for c in captures.values() for r in c.ranks if not r.gone}
        silent: list[SilentNode] = []
        for name, node in known.items():
            seen = {r.rank for r in captures[name].ranks} if name in captures else set()
            lost = sorted(
                set(node.ranks) - seen - present
            )  # a rank may have come up again on another node
            if name not in captures and name not in self.empty:
                if lost or not node.ranks:  # else it is no longer a node of this job
                    silent.append(SilentNode(name, self._why_silent(name, node, now), lost))
                continue
            gone = lost if name in self.empty else [r for r in lost if node.ranks[r]]
            if gone:
                note = (
                    f"{name} answered but has no rank of the job: {self.empty[name]}"
                    if name in self.empty
                    else ""
                )
                capture = captures.setdefault(name, NodeCapture(name, node.job, notes=[note]))
                capture.ranks += [
                    RankCapture(pid=0, rank=r, node=name, world_size=world, gone=True) for r in gone
                ]
        keys = [c.job for c in captures.values() if c.job] or [
            n.job for n in known.values() if n.job
        ]
        return JobCapture(
            job=max(set(keys), key=keys.count) if keys else "unknown", nodes=[captures[n] for n in sorted(captures)],
            silent=silent, world_size=world, layout=next((c.layout for c in captures.values() if c.layout), None),
            settle_s=self.settle_s, taken=wall, took_s=now - self.begun, notes=[self.reason],
            packed=self._bodies if world > LARGE else {},
        )  # fmt: skip

    def _why_silent(self, name: str, node: Node, now: float) -> str:
        if name in self.without:
            return self.without[name]
        if node.left:
            return "its agent has left"
        if name in self.silent_before:
            return f"no message from its agent for {now - node.heard:.0f} s"
        return f"its agent did not answer within {now - self.begun:.0f} s"
