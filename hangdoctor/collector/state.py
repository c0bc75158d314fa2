"""The collector's core: events in, instructions out, no I/O and no clock.

    received, tick, concluded, ask   ->   Send, Log, Remember, Conclude

`now` is a clock that never goes back, `wall` the time of day for what people read. The server carries instructions out;
a test calls the methods and looks at what comes back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..errors import OtherProtocol, WireError
from ..evidence import Hearing
from ..messages import (
    Ack,
    Bye,
    Captured,
    Declined,
    Dismissed,
    Hello,
    NodeNews,
    RankNow,
    Rejected,
    Relayed,
    Report,
    Trace,
    Welcome,
    WhoAreYou,
    from_agent,
)  # fmt: skip
from ..model import JobCapture
from ..stragglers import SlowSettings, Straggler, Stragglers
from ..watchdog import Stall, Watchdog
from .door import Door, Peer
from .early import Early, hearing
from .parts import Conclude, Counters, Instruction, Log, Node, Position, Remember, Send, Settings
from .round import Round

__all__ = ["Core", "Counters", "Settings"]
_EMPTY_S = 10.0  # agents without a rank for so long are worth a line
_TOLD = -1.0
_STANDS_S = 1.5  # without progress, before it is asked how well the nodes are heard
_CLOSE_S = 0.25  # between two ticks while the job pauses
_SETTLE_S = 0.5  # of a capture on evidence: the ranks have stood for seconds
_GATHER_S = 10.0  # for ranks that are missing, before it is said how many are watched
KEEP_LEAST = 16  # operations of a rank in a capture, however many ranks there are


class Core:
    """All decisions of the collector."""

    def __init__(
        self, settings: Settings, watchdog: Watchdog, positions: dict[str, Position] | None = None, session: str = "c",
        slow: SlowSettings | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.watchdog = watchdog
        self.stragglers = Stragglers(slow)
        self.positions = positions or {}
        self.session = session
        self.nodes: dict[str, Node] = {}
        self.relays: dict[str, Node] = {}  # collectors below this one, by their names
        self.counters = Counters()
        self.round: Round | None = None
        self.trace: Trace | None = None  # what the agents were told last
        self._door = Door(settings, self.counters, self._node_of)
        self._unacked: dict[str, bytes] = {}
        self._rounds = 0
        self._asked: deque[str] = deque(maxlen=8)
        self._early = Early()
        self._remembered_at = -1e18
        self._warm_since: float | None = None
        self._straggler: Straggler | None = None
        self._concluding = ""
        self._told_warm = False
        self._empty_since: float | None = None  # agents are here, and none has a rank
        self.observer: Callable[[str, list[RankNow], float, float], None] | None = None  # sees all news that are taken

    # ----------------------------------------------------------------- from the network

    def received(self, peer: bytes, frames: list[bytes], now: float, wall: float) -> list[Instruction]:
        """One message of a peer, undecoded."""
        self.counters.messages += 1
        self.counters.bytes += sum(map(len, frames))
        state, out = self._door.admit(peer, now)
        if state is None:
            return out
        try:
            message = from_agent(frames)
        except OtherProtocol as error:
            self.counters.other_protocol += 1
            first = state.strikes == 0
            out = self._door.strike(peer, state, "")
            told: list[Instruction] = [Send(peer, Rejected(str(error))), Log(f"an agent is refused: {error}")]
            return (told if first else []) + out
        except WireError as error:
            self.counters.malformed += 1
            return self._door.strike(peer, state, str(error))
        if isinstance(message, Hello):
            return self._hello(peer, state, message, now)
        sender = self._node_of(state.agent)
        node = next((n for n in (self.nodes.get(sender), self.relays.get(sender)) if n and n.peer == peer), None)
        if node is None:
            self.counters.unknown += 1  # no harm is meant: this collector was restarted, perhaps, and reports were under way
            return [Send(peer, WhoAreYou())]
        node.heard = now
        if isinstance(message, Report | Relayed):
            if isinstance(message, Relayed) != (node.name in self.relays):
                return self._door.strike(peer, state, "a report that is not its to make")
            return self._report(node, message, now)
        if isinstance(message, Bye):
            node.left = True
            return [Log(f"{node.name}: its agent has left: {message.why[:120] or 'no reason given'}")]
        return self._answer(node, message, now, wall)

    def _node_of(self, agent: str) -> str:
        position = self.positions.get(agent)
        return position.node if position else ""

    def _hello(self, peer: bytes, state: Peer, hello: Hello, now: float) -> list[Instruction]:
        table = self.relays if hello.relay else self.nodes
        known = table.get(hello.node)
        if (known is None and len(table) >= self.settings.max_nodes) or hello.node in (
            self.nodes if hello.relay else self.relays
        ):
            why = f"more than {self.settings.max_nodes} nodes, or a name that is taken"
            return [Send(peer, Rejected(why)), *self._door.strike(peer, state, why)]
        if known is not None and known.agent != hello.agent and not known.left and now - known.heard < self.settings.silent_s:
            # Two agents of one node: the first stays, so that nobody can push a living one aside.
            why = f"node {hello.node} has an agent that reports already"
            return [Send(peer, Rejected(why)), *self._door.strike(peer, state, why)]
        if len(self.positions) > 2 * self.settings.max_nodes:  # agents come and go; of some nobody will speak again
            speaking = {n.agent for n in (*self.nodes.values(), *self.relays.values())}
            self.positions = {a: p for a, p in self.positions.items() if a in speaking or a in self._unacked}
        position = self.positions.setdefault(hello.agent, Position())
        position.node = hello.node
        state.agent = hello.agent
        ranks = self._ranks_of(known, hello.job, hello.world_size)
        node = Node(hello.node, peer, hello.agent, now, hello.job, hello.world_size, ranks)
        table[hello.node] = node
        out: list[Instruction] = [Send(peer, Welcome(position.seq, self.settings.interval_s))]
        if self.trace is not None:
            out.append(Send(peer, self.trace))
        if known is None or known.agent != hello.agent or known.left:
            what = "a collector" if hello.relay else "its agent"
            out.append(Log(f"{hello.node}: {what} is here ({len(self.nodes)} nodes)"))
        return out

    def _ranks_of(self, known: Node | None, job: str, world_size: int) -> dict[int, bool]:
        """The ranks of a node that says hello: none where another run has begun on it, whose ranks it tells after that."""
        if known is None or not known.job or not job or (job, world_size) == (known.job, known.world_size):
            return known.ranks if known is not None else {}
        elsewhere = {r for n in self.nodes.values() if n is not known for r, over in n.ranks.items() if not over}
        self._forget(known.name, set(known.ranks) - elsewhere)
        return {}

    def _forget(self, node: str, ranks: set[int]) -> None:
        self.watchdog.forget(ranks)

    def _report(self, node: Node, report: Report | Relayed, now: float) -> list[Instruction]:
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
        if isinstance(report, Report):
            self._news(
                node, NodeNews(node.name, ranks=report.ranks, timeout_s=report.timeout_s, past=report.past), report.late_s, now
            )
            return []
        return [i for news in report.nodes for i in self._relayed(node, news, report.late_s, now)]

    def _relayed(self, relay: Node, news: NodeNews, late_s: float, now: float) -> list[Instruction]:
        """What a collector below says of one node."""
        node = self.nodes.get(news.node)
        if node is not None and node.via != relay.name and not node.left and now - node.heard < self.settings.silent_s:
            return []  # it has an agent here, or behind another collector: that one speaks for it
        if node is None and (len(self.nodes) >= self.settings.max_nodes or news.node in self.relays):
            return []
        ranks = self._ranks_of(node, news.job, news.world_size)
        fresh = Node(news.node, relay.peer, relay.agent, now - late_s - news.silent_s, news.job, news.world_size, ranks,
                     news.left, relay.name)  # fmt: skip
        if node is not None and node.via == relay.name:
            fresh.heard = max(fresh.heard, node.heard)
        self.nodes[news.node] = fresh
        self._news(fresh, news, late_s, now)
        return [Log(f"{news.node} is here, behind {relay.name} ({len(self.nodes)} nodes)")] if node is None else []

    def _news(self, node: Node, news: NodeNews, late_s: float, now: float) -> None:
        for rank in news.ranks:
            node.ranks[rank.rank] = rank.over
        if news.past is not None:
            self.watchdog.recall(now, news.past)
        self.watchdog.report(now, news.ranks, late_s)
        if self.observer is not None:
            self.observer(node.name, news.ranks, late_s, now)
        if late_s < 2 * self.settings.interval_s:
            self.stragglers.report(news.ranks)
        if news.silent_s + late_s < self.settings.silent_s:
            self.watchdog.heard(now, node.name, news.timeout_s)

    def _answer(self, node: Node, message: Captured | Declined, now: float, wall: float) -> list[Instruction]:
        if self.round is None or message.id != self.round.id:
            return []
        if node.name in self.relays:
            behind = self.nodes.get(message.node or "")
            if behind is None or behind.via != node.name:
                return []
            node = behind
        note = self.round.take(node.name, message)
        return ([Log(note)] if note else []) + self._finish_round(now, wall)

    # ----------------------------------------------------------------- time

    def tick(self, now: float, wall: float) -> list[Instruction]:
        """Call it every `rest_s`."""
        out: list[Instruction] = []
        if self._unacked and now - self._remembered_at > 0.9 * self.settings.interval_s:
            self._remembered_at = now
            out.append(self._remember())
        hears = self._hearing(now)
        out += self._greet(now, hears)
        out += self._empty(now)
        stall = self.watchdog.tick(now, hears)
        if stall is not None:
            out += self._stalled(stall, now)
        elif self._early.suspicion is not None:
            out += self._go_on(now)
        else:
            out += self._other_reasons(now, hears)
        if self.round is not None:
            out += self._finish_round(now, wall)
        return out

    def rest_s(self, now: float) -> float:
        """Seconds until the next tick: fewer while it may have to be decided whether this is a stall."""
        close = self._early.suspicion is not None or self.watchdog.quiet(now)
        return _CLOSE_S if close else self.settings.interval_s

    def _hearing(self, now: float) -> Hearing:
        if now - self.watchdog.last_event < _STANDS_S and self._told_warm:
            return Hearing()
        return hearing(self.nodes.values(), self.watchdog.ranks, self.watchdog.last_event, now)

    def _greet(self, now: float, hears: Hearing) -> list[Instruction]:
        """Once: the watch has begun."""
        if self._told_warm or not self.watchdog.learned.warm:
            return []
        self._warm_since = now if self._warm_since is None else self._warm_since
        if not (hears.complete and self.watchdog.ranks) and now - self._warm_since < _GATHER_S:
            return []
        self._told_warm = True
        return [Log(f"the job's rhythm is known; {self.watchdog.ranks} ranks are watched")]

    def _stalled(self, stall: Stall, now: float) -> list[Instruction]:
        """A capture of it; the one that is under way or held on evidence serves as well."""
        said = Log(f"no rank has made progress for {stall.age_s:.1f} s ({stall.why}): capturing")
        reason = f"stall: no progress for {stall.age_s:.1f} s, bound {stall.bound_s:.1f} s"
        early, id = self._early.held, self._early.id
        self._early.end()
        if early is not None:
            return [said, *self._conclude(id, early, reason)]
        if self.round is not None and self.round.id == id:
            self.round.reason, self.round.early = reason, False
            return [said]
        return [said, *self._begin(reason, now)]

    def _go_on(self, now: float) -> list[Instruction]:
        """With a capture on evidence: drop it, wait, or conclude it."""
        early, suspicion = self._early, self._early.suspicion
        assert suspicion is not None
        if self._concluding == early.id:
            return []
        if early.is_void(self.watchdog, self.nodes):
            return self._drop(now)
        if not early.is_due(self.watchdog, self.nodes.values()) or early.held is None:
            return []
        stall = self.watchdog.declare(now, suspicion)
        said = Log(f"no rank has made progress for {stall.age_s:.1f} s: {stall.why}")
        passed = f"no progress for {stall.age_s:.1f} s, bound {stall.bound_s:.1f} s"
        reason = f"stall: {passed}: {stall.why}"
        capture, early.held = early.held, None
        return [said, *self._conclude(early.id, capture, reason, early=True)]

    def _drop(self, now: float) -> list[Instruction]:
        """The capture on evidence came to nothing: no incident."""
        suspicion, id = self._early.suspicion, self._early.id
        self._early.end()
        if self.round is not None and self.round.id == id:
            self.round = None
        if suspicion is None:
            return []
        self.counters.dropped += 1
        self.watchdog.dropped(now, suspicion)
        passed = f"a pause of {suspicion.age_s:.1f} s ({suspicion.why})"
        return [Log(f"{passed} was looked at and is none: the capture is dropped")]

    def _other_reasons(self, now: float, hears: Hearing) -> list[Instruction]:
        """Evidence of a stall, a slow rank, or a person's wish."""
        free = self.round is None and not self._concluding
        suspicion = self.watchdog.suspicion(now, hears) if free else None
        if suspicion is not None:
            out = self._begin(f"stall: {suspicion.why}", now, hears)
            assert self.round is not None
            self._early.begin(suspicion, self.round.id, hears, now)
            return out
        slow = self._slow(now)
        if slow is None:
            return self._begin(self._asked.popleft(), now) if self._asked and free else []
        self._straggler = slow
        least = min(share for rank, share in slow.shares.items() if rank != slow.rank)
        waited = f"it waited {slow.shares[slow.rank]}% of {slow.window_s:.0f} s"
        what = f"rank {slow.rank} comes last: {waited}, the others {least}% or more"
        return [Log(f"{what}: capturing"), *self._begin(f"slow: {what}", now)]

    def _empty(self, now: float) -> list[Instruction]:
        """Once: the job has not begun, or another one was meant."""
        if not self.nodes or self._empty_since == _TOLD:
            return []
        if any(n.job for n in self.nodes.values()):
            self._empty_since = _TOLD
            return []
        self._empty_since = now if self._empty_since is None else self._empty_since
        if now - self._empty_since < _EMPTY_S:
            return []
        self._empty_since = _TOLD
        count = len(self.nodes)
        where = "1 node is here and has" if count == 1 else f"{count} nodes are here and have"
        return [Log(f"waiting for ranks: {where} none of the job yet; the log of an agent names the jobs of its node")]

    def _slow(self, now: float) -> Straggler | None:
        if self.round is not None or self._concluding or self.watchdog.stalled:
            self.stragglers.forget()
            return None
        return self.stragglers.tick(now, self.watchdog.living)

    def switch_trace(self, trace: Trace) -> list[Instruction]:
        """Have all agents, also those that come later, switch the call traces of their ranks."""
        self.trace = trace
        return [Send(peer, trace) for peer in self._direct()]

    def dismiss(self) -> list[Instruction]:
        """The collector will not come back: the agents may end."""
        return [Send(peer, Dismissed()) for peer in self._direct()]

    def _direct(self) -> list[bytes]:
        """Everybody who speaks with this collector itself."""
        nodes = [*self.relays.values(), *(n for n in self.nodes.values() if not n.via)]
        return [n.peer for n in nodes if not n.left]

    def _remember(self) -> Remember:
        unacked, self._unacked = self._unacked, {}
        return Remember([Send(peer, Ack(self.positions[agent].seq)) for agent, peer in unacked.items()])

    def ask(self, reason: str) -> None:
        """A person wants a capture."""
        self._asked.append(reason)

    def silent_nodes(self, now: float) -> list[str]:
        return sorted(n.name for n in self.nodes.values() if not n.left and now - n.heard > self.settings.silent_s)

    def _begin(self, reason: str, now: float, hears: Hearing | None = None) -> list[Instruction]:
        """Ask all nodes for a capture; `hears` is given where it rests on evidence."""
        if self.round is not None or self._concluding:
            self._asked.append(reason)
            return []
        s = self.settings
        self._rounds += 1
        settle_s = s.settle_s if hears is None else min(s.settle_s, _SETTLE_S)
        id = f"{self.session}-{self._rounds}"
        self.round = Round(id, reason, now, s.capture_s + s.patience_s, settle_s)
        self.round.early = hears is not None
        ranks = sum(len(n.ranks) for n in self.nodes.values())
        keep = max(KEEP_LEAST, min(s.keep_ops, s.keep_all_ops // max(1, ranks)))
        silent = hears.nodes if hears is not None else ()
        return list(self.round.begin(self.nodes.values(), now, s.silent_s, keep, silent))

    def _finish_round(self, now: float, wall: float) -> list[Instruction]:
        assert self.round is not None
        if not self.round.complete(now):
            return []
        done, self.round = self.round, None
        if done.early:
            self._early.held = done.join(self.nodes.values(), now, wall)
            return self._go_on(now)
        if done.is_stall and not self.watchdog.stalled:
            return [Log("the job goes on; the capture is dropped")]
        capture = done.join(self.nodes.values(), now, wall)
        slow, self._straggler = self._straggler, None
        if slow is not None and done.reason.startswith("slow"):
            capture.slowest, capture.waited, capture.waited_s = slow.rank, slow.shares, slow.window_s
        return self._conclude(done.id, capture, done.reason)

    def _conclude(self, id: str, capture: JobCapture, reason: str, early: bool = False) -> list[Instruction]:
        self._concluding = id
        capture.notes = [reason]
        return [Conclude(id, capture, reason, early)]

    def concluded(self, id: str, status: str, now: float) -> list[Instruction]:
        """The diagnosis of a capture: "healthy" takes a stall back."""
        if id == self._concluding:
            self._concluding = ""
        if self._early.suspicion is not None and id == self._early.id:
            if status != "hang":
                return self._drop(now)
            self._early.end()
        if status == "healthy" and self.watchdog.stalled:
            self.counters.false_alarms += 1
            self.watchdog.false_alarm(now)
            return [Log("the capture shows that the job goes on: no incident, and so long a pause is normal from now on")]
        self.counters.incidents += 1
        return []
