"""The collector's core: events in, instructions out, no I/O and no clock.

    received, tick, concluded, ask   ->   Send, Log, Remember, Conclude

`now` is a clock that never goes back, `wall` the time of day for what people read. The server carries instructions out;
a test calls the methods and looks at what comes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from ..errors import OtherProtocol, WireError
from ..messages import Ack, Bye, Captured, Declined, Hello, Rejected, Report, Welcome, WhoAreYou, from_agent
from ..watchdog import Stall, Watchdog
from .parts import Conclude, Instruction, Log, Node, Position, Remember, Send
from .round import Round


class Settings(Struct, frozen=True):
    interval_s: float = 1.0
    settle_s: float = 1.0
    capture_s: float = 6.0  # what an agent gets for its capture
    patience_s: float = 2.0  # beyond that, for the way
    silent_s: float = 5.0  # not heard for so long: silent
    keep_ops: int = 80
    strikes: int = 10  # bad messages before a peer is cut off
    rate: float = 200.0  # messages a second that one peer may send for long
    burst: float = 2000.0
    max_nodes: int = 8192
    max_peers: int = 20_000


class _Peer(Struct):
    agent: str = ""
    strikes: int = 0
    tokens: float = 0.0
    filled: float = 0.0


class Counters(Struct):
    """What the collector refused or lost, for people and for `collect`'s last line."""

    malformed: int = 0
    other_protocol: int = 0
    unknown: int = 0
    flooded: int = 0
    cut_off: int = 0
    reports: int = 0
    incidents: int = 0
    false_alarms: int = 0
    messages: int = 0
    bytes: int = 0


class Core:
    """All decisions of the collector."""

    def __init__(
        self, settings: Settings, watchdog: Watchdog, positions: dict[str, Position] | None = None, session: str = "c"
    ) -> None:
        self.settings = settings
        self.watchdog = watchdog
        self.positions = positions or {}
        self.session = session
        self.nodes: dict[str, Node] = {}
        self.counters = Counters()
        self.round: Round | None = None
        self._peers: dict[bytes, _Peer] = {}
        self._cut_off: dict[bytes, None] = {}
        self._unacked: dict[str, bytes] = {}
        self._rounds = 0
        self._asked: deque[str] = deque(maxlen=8)
        self._stall: Stall | None = None
        self._concluding = ""
        self._told_warm = False
        self.observer: Callable[[str, Report, float], None] | None = None  # sees every report that is taken

    # ----------------------------------------------------------------- from the network

    def received(self, peer: bytes, frames: list[bytes], now: float, wall: float) -> list[Instruction]:
        """One message of a peer, undecoded."""
        self.counters.messages += 1
        self.counters.bytes += sum(map(len, frames))
        if peer in self._cut_off:
            return []
        state, out = self._admit(peer, now)
        if state is None:
            return out
        try:
            message = from_agent(frames)
        except OtherProtocol as error:
            self.counters.other_protocol += 1
            first = state.strikes == 0
            out = self._strike(peer, state, "")
            told: list[Instruction] = [Send(peer, Rejected(str(error))), Log(f"an agent is refused: {error}")]
            return (told if first else []) + out
        except WireError as error:
            self.counters.malformed += 1
            return self._strike(peer, state, str(error))
        if isinstance(message, Hello):
            return self._hello(peer, state, message, now)
        node = next((n for n in (self.nodes.get(self._node_of(state.agent)),) if n and n.peer == peer), None)
        if node is None:
            self.counters.unknown += 1
            return [Send(peer, WhoAreYou()), *self._strike(peer, state, "")]
        node.heard = now
        if isinstance(message, Report):
            return self._report(node, message, now)
        if isinstance(message, Bye):
            node.left = True
            return [Log(f"{node.name}: its agent has left: {message.why[:120] or 'no reason given'}")]
        return self._answer(node, message, now, wall)

    def _admit(self, peer: bytes, now: float) -> tuple[_Peer | None, list[Instruction]]:
        """The peer's books, or None where it sends more than anybody may."""
        state = self._peers.get(peer)
        if state is None:
            if len(self._peers) >= self.settings.max_peers:
                idle = next((p for p, s in self._peers.items() if not s.agent), None)
                if idle is None:
                    return None, []
                del self._peers[idle]
            state = self._peers[peer] = _Peer(tokens=self.settings.burst, filled=now)
        state.tokens = min(self.settings.burst, state.tokens + (now - state.filled) * self.settings.rate)
        state.filled = now
        if state.tokens < 1:
            self.counters.flooded += 1
            return None, self._cut(peer, "a flood of messages")
        state.tokens -= 1
        return state, []

    def _strike(self, peer: bytes, state: _Peer, why: str) -> list[Instruction]:
        state.strikes += 1
        if state.strikes >= self.settings.strikes:
            return self._cut(peer, why or "messages that make no sense")
        return [Log(f"a message of {self._who(peer)} is dropped: {why}")] if why and state.strikes == 1 else []

    def _cut(self, peer: bytes, why: str) -> list[Instruction]:
        who = self._who(peer)
        self._peers.pop(peer, None)
        self._cut_off[peer] = None
        if len(self._cut_off) > self.settings.max_peers:
            del self._cut_off[next(iter(self._cut_off))]
        self.counters.cut_off += 1
        if self.counters.cut_off > 100:  # whoever makes a new identity for each message must not fill the log
            return []
        return [Log(f"{who} is cut off: {why}")]

    def _who(self, peer: bytes) -> str:
        state = self._peers.get(peer)
        return f"the agent of {self._node_of(state.agent)}" if state and state.agent else f"peer {peer.hex()[:16]}"

    def _node_of(self, agent: str) -> str:
        position = self.positions.get(agent)
        return position.node if position else ""

    def _hello(self, peer: bytes, state: _Peer, hello: Hello, now: float) -> list[Instruction]:
        known = self.nodes.get(hello.node)
        if known is None and len(self.nodes) >= self.settings.max_nodes:
            return [
                Send(peer, Rejected(f"more than {self.settings.max_nodes} nodes")),
                *self._strike(peer, state, "too many nodes"),
            ]
        if known is not None and known.agent != hello.agent and not known.left and now - known.heard < self.settings.silent_s:
            # Two agents of one node: the first stays, so that nobody can push a living one aside.
            why = f"node {hello.node} has an agent that reports already"
            return [Send(peer, Rejected(why)), *self._strike(peer, state, why)]
        position = self.positions.setdefault(hello.agent, Position())
        position.node = hello.node
        state.agent = hello.agent
        node = Node(hello.node, peer, hello.agent, now, hello.job, hello.world_size, known.ranks if known else {})
        self.nodes[hello.node] = node
        out: list[Instruction] = [Send(peer, Welcome(position.seq, self.settings.interval_s))]
        if known is None or known.agent != hello.agent or known.left:
            out.append(Log(f"{hello.node}: its agent is here ({len(self.nodes)} nodes)"))
        return out

    def _report(self, node: Node, report: Report, now: float) -> list[Instruction]:
        position = self.positions[node.agent]
        if report.seq <= position.seq:
            position.doubled += 1
            self._unacked[node.agent] = node.peer
            return []
        if report.seq > position.seq + 1:
            if report.oldest <= position.seq + 1:
                return [Send(node.peer, Welcome(position.seq, self.settings.interval_s))]  # from there again, in order
            position.lost += report.seq - position.seq - 1
        position.seq = report.seq
        position.received += 1
        self.counters.reports += 1
        self._unacked[node.agent] = node.peer
        for rank in report.ranks:
            node.ranks[rank.rank] = rank.over
        self.watchdog.report(now, report.ranks, report.late_s)
        self.watchdog.heard(now)
        if self.observer is not None:
            self.observer(node.name, report, now)
        return []

    def _answer(self, node: Node, message: Captured | Declined, now: float, wall: float) -> list[Instruction]:
        if self.round is None or message.id != self.round.id:
            return []
        note = self.round.take(node.name, message)
        return ([Log(note)] if note else []) + self._finish_round(now, wall)

    # ----------------------------------------------------------------- time

    def tick(self, now: float, wall: float) -> list[Instruction]:
        """Call it every `interval_s`."""
        out: list[Instruction] = []
        if self._unacked:
            out.append(Remember(self.positions, self.watchdog.learned))
            out += [Send(peer, Ack(self.positions[agent].seq)) for agent, peer in self._unacked.items()]
            self._unacked = {}
        if self.watchdog.learned.warm and not self._told_warm:
            self._told_warm = True
            out.append(Log(f"the job's rhythm is known; {self.watchdog.ranks} ranks are watched"))
        stall = self.watchdog.tick(now)
        if stall is not None:
            self._stall = stall
            out.append(Log(f"no rank has made progress for {stall.age_s:.1f} s ({stall.why}): capturing"))
            out += self._begin(f"stall: no progress for {stall.age_s:.1f} s, bound {stall.bound_s:.1f} s", now)
        elif self._asked and self.round is None and not self._concluding:
            out += self._begin(self._asked.popleft(), now)
        if self.round is not None:
            out += self._finish_round(now, wall)
        return out

    def ask(self, reason: str) -> None:
        """A person wants a capture."""
        self._asked.append(reason)

    def silent_nodes(self, now: float) -> list[str]:
        return sorted(n.name for n in self.nodes.values() if not n.left and now - n.heard > self.settings.silent_s)

    def _begin(self, reason: str, now: float) -> list[Instruction]:
        if self.round is not None or self._concluding:
            self._asked.append(reason)
            return []
        self._rounds += 1
        self.round = Round(
            f"{self.session}-{self._rounds}",
            reason,
            now,
            self.settings.capture_s + self.settings.patience_s,
            self.settings.settle_s,
        )
        return list(self.round.begin(self.nodes.values(), now, self.settings.silent_s, self.settings.keep_ops))

    def _finish_round(self, now: float, wall: float) -> list[Instruction]:
        assert self.round is not None
        if not self.round.complete(now):
            return []
        done, self.round = self.round, None
        self._concluding = done.id
        if done.is_stall and not self.watchdog.stalled:
            self._concluding = ""
            return [Log("the job goes on; the capture is dropped")]
        capture = done.join(self.nodes.values(), now, wall)
        return [Conclude(done.id, capture, done.reason)]

    def concluded(self, id: str, status: str, now: float) -> list[Instruction]:
        """The diagnosis of a capture: "healthy" takes a stall back."""
        if id == self._concluding:
            self._concluding = ""
        if status == "healthy" and self.watchdog.stalled:
            self.counters.false_alarms += 1
            self.watchdog.false_alarm(now)
            return [Log("the capture shows that the job goes on: no incident, and so long a pause is normal from now on")]
        self.counters.incidents += 1
        return []
