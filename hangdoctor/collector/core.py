"""The collector's core: events in, instructions out, no I/O and no clock.

    received, tick, concluded, ask   ->   Send, Log, Remember, Conclude

`now` is a clock that never goes back, `wall` the time of day for what people read. The server carries instructions out;
a test calls the methods and looks at what comes back.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import OtherProtocol, WireError
from ..model.members import Members
from ..probe.calls.request import Request
from ..text.plural import count
from ..transport.messages import (
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
)
from ..watch.stall_evidence import Hearing
from ..watch.stall_watch import StallWatch
from ..watch.straggler_watch import SlowSettings, Straggler, StragglerWatch
from .begin_lines import BeginLines
from .capture_round import Round
from .captures import KEEP_LEAST, Captures
from .crowd_lines import CrowdLines
from .end_watch import EndLine, EndWatch
from .ended_members import EndedMembers
from .evidence_capture import alive, hearing
from .instructions import Counters, Instruction, Log, Node, Position, Remember, Send, Settings
from .node_table import NodeTable
from .peer_limits import Door, Peer
from .rendezvous_watch import RendezvousWatch
from .training_events import TrainingEvents

__all__ = ["KEEP_LEAST", "Core", "Counters", "Settings"]
_STANDS_S = 1.5  # without progress, before it is asked how well the nodes are heard
_CLOSE_S = 0.25  # between two ticks while the job pauses


Observer = Callable[[str, list[RankNow], float, float], None]  # node, ranks, late_s, now


class Core:
    """All decisions of the collector."""

    def __init__(
        self,
        settings: Settings,
        watchdog: StallWatch,
        positions: dict[str, Position] | None = None,
        session: str = "c",
        slow: SlowSettings | None = None,
    ) -> None:
        self.settings = settings
        self.watchdog = watchdog
        self.stragglers = StragglerWatch(slow)
        bounds = watchdog.settings
        self._rendezvous = RendezvousWatch(bounds.stall_after_s or bounds.start_s)
        self._end, self._end_line = EndWatch(), EndLine(settings.linger_s)
        self.session = session
        self.table = NodeTable(settings, positions)
        self.nodes, self.relays = self.table.nodes, self.table.relays
        self.positions = self.table.positions
        self.counters = Counters()
        self.captures = Captures(
            settings, watchdog, self.counters, nodes=self.nodes, session=session
        )
        self.trace: Trace | None = None  # what the agents were sent last
        self._door = Door(settings, self.counters, self.table.node_of)
        self._coming, self._leaving = CrowdLines("connected"), CrowdLines("left")
        self._unacked: dict[str, bytes] = {}
        self.events = TrainingEvents()
        self._remembered_at = -1e18
        self._begin = BeginLines(self.nodes, watchdog)
        self.observers: list[Observer] = []  # see all news that are taken
        # Which nodes the job has now, where that is known.
        self.members: Callable[[], Members] = lambda: Members(settings.expected)
        self._ended = EndedMembers()
        self._dismissing = False  # each agent that speaks is dismissed as well

    # ----------------------------------------------------------------- from the network

    def received(
        self, peer: bytes, frames: list[bytes], now: float, wall: float
    ) -> list[Instruction]:
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
            struck = self._door.strike(peer, state, "")
            if not first:
                return struck
            refusal = Log(f"an agent was refused: {error}")
            return [Send(peer, Rejected(str(error))), refusal, *struck]
        except WireError as error:
            self.counters.malformed += 1
            return self._door.strike(peer, state, str(error))
        if self._dismissing and not isinstance(message, Bye):
            return [Send(peer, Dismissed())]  # it was not connected when the others were told
        if isinstance(message, Hello):
            return self._hello(peer, state, message, now)
        node = self.table.sender(peer, state.agent)
        if node is None:
            # No harm is meant: this collector was restarted, perhaps, and reports were under way.
            self.counters.unknown += 1
            return [Send(peer, WhoAreYou())]
        node.heard = now
        if isinstance(message, Report | Relayed):
            if isinstance(message, Relayed) != (node.name in self.relays):
                return self._door.strike(peer, state, "a report about a node that is not its own")
            return self._report(node, message, now)
        if isinstance(message, Bye):
            node.left = True
            why = message.why[:120] or "no reason given"
            return [*self._leaving.say(f"{node.name}: its agent has left: {why}", now)]
        return self._answer(node, message, now, wall)

    def _hello(self, peer: bytes, state: Peer, hello: Hello, now: float) -> list[Instruction]:
        why = self.table.refusal(hello, now)
        if why:
            return [Send(peer, Rejected(why)), *self._door.strike(peer, state, why)]
        known = self.table.known(hello)
        position = self.table.position(hello.agent, hello.node, self._unacked)
        state.agent = hello.agent
        ranks = self._ranks_of(known, hello.job, hello.world_size)
        node = self.table.enter(hello, peer, ranks, now)
        out: list[Instruction] = [Send(peer, Welcome(position.seq, self.settings.interval_s))]
        out += self._same_run(node)
        if self.trace is not None:
            out.append(Send(peer, self.trace))
        if known is None or known.agent != hello.agent or known.left:
            what = "a collector" if hello.relay else "its agent"
            line = f"{hello.node}: {what} has connected ({count(len(self.nodes), 'node')})"
            out += self._coming.say(line, now)
        return out

    def _ranks_of(self, known: Node | None, job: str, world_size: int) -> dict[int, bool]:
        """The ranks of a node that says hello: none where another run has begun on it, whose ranks it reports after that."""
        if known is None:
            return {}
        same = (job, world_size) == (known.job, known.world_size)
        if same or not known.job or not job:
            return known.ranks
        elsewhere = alive(node for node in self.nodes.values() if node is not known)
        self._forget(known.name, set(known.ranks) - elsewhere)
        return {}

    def _same_run(self, node: Node) -> list[Instruction]:
        """What was learned of the run before does not hold for the next: a line where one has begun."""
        if not self.watchdog.met(node.name, node.job, node.began):
            return []
        self.stragglers.forget()
        self.captures.early.end()
        self._begin.again()
        return [Log("another run of the job has begun: its rhythm is learned from the start")]

    def _forget(self, node: str, ranks: set[int]) -> None:
        self.watchdog.forget(ranks)

    def _report(self, node: Node, report: Report | Relayed, now: float) -> list[Instruction]:
        position = self.positions[node.agent]
        if report.seq <= position.seq:
            position.doubled += 1
            self._unacked[node.agent] = node.peer
            return []
        if report.seq > position.seq + 1:
            if report.oldest <= position.seq + 1:  # from there again, in order
                return [Send(node.peer, Welcome(position.seq, self.settings.interval_s))]
            position.lost += report.seq - position.seq - 1
        position.seq = report.seq
        position.received += 1
        self.counters.reports += 1
        self._unacked[node.agent] = node.peer
        if isinstance(report, Report):
            news = NodeNews(node.name, ranks=report.ranks)
            news.timeout_s, news.past = report.timeout_s, report.past
            news.events = report.events
            node.waits_s = report.waits_s
            self._news(node, news, report.late_s, now)
            return []
        return [i for news in report.nodes for i in self._relayed(node, news, report.late_s, now)]

    def _relayed(self, relay: Node, news: NodeNews, late_s: float, now: float) -> list[Instruction]:
        """What a collector below says of one node."""
        node = self.nodes.get(news.node)
        ours = node is not None and node.via == relay.name
        if node is not None and not ours and node.speaks(now, self.settings.silent_s):
            return []  # it has an agent here, or behind another collector: that one speaks for it
        if node is None and (self.table.full or news.node in self.relays):
            return []
        ranks = self._ranks_of(node, news.job, news.world_size)
        fresh = self.table.enter_behind(relay, news, ranks, heard=now - late_s - news.silent_s)
        out = self._same_run(fresh)
        self._news(fresh, news, late_s, now)
        if node is not None:
            return out
        line = f"{news.node}: its agent has connected through {relay.name}"
        return [*out, *self._coming.say(f"{line} ({count(len(self.nodes), 'node')})", now)]

    def _news(self, node: Node, news: NodeNews, late_s: float, now: float) -> None:
        for rank in news.ranks:
            node.ranks[rank.rank] = rank.over
        if news.past is not None:
            self.watchdog.recall(now, news.past)
        self.events.take(news.events, node.name, node.job, late_s=late_s)
        self.watchdog.report(now, news.ranks, late_s)
        for observer in self.observers:
            observer(node.name, news.ranks, late_s, now)
        if late_s < 2 * self.settings.interval_s:
            self.stragglers.report(news.ranks)
        if news.silent_s + late_s < self.settings.silent_s:
            self.watchdog.heard(now, node.name, news.timeout_s)

    def _answer(
        self, node: Node, message: Captured | Declined, now: float, wall: float
    ) -> list[Instruction]:
        if node.name in self.relays:
            behind = self.nodes.get(message.node or "")
            if behind is None or behind.via != node.name:
                return []
            node = behind
        if self.round is None or message.id != self.round.id:
            self.captures.late(node.name, message.id)
            return []
        if self.round.expects(node.name):
            self._door.give_back(node.peer)
        note = self.round.take(node.name, message)
        return ([Log(note)] if note else []) + self.captures.finish(now, wall)

    # ----------------------------------------------------------------- time

    def tick(self, now: float, wall: float) -> list[Instruction]:
        """Call it every `rest_s`."""
        out: list[Instruction] = []
        if self._unacked and now - self._remembered_at > 0.9 * self.settings.interval_s:
            self._remembered_at = now
            out.append(self._remember())
        members = self.members()
        for news in self._ended.news(members, self.nodes, self.watchdog, now):
            self._news(self.nodes[news.node], news, 0.0, now)
        hears = self._hearing(members, now)
        for crowd in (self._coming, self._leaving):
            out += crowd.tick(now, len(self.nodes))
        out += self._begin.tick(now, hears)
        watch = self.watchdog
        out += map(Log, self._end_line.tick(now, watch.ranks, watch.living, watch.lost))
        stall = self.watchdog.tick(now, hears)
        if stall is not None:
            out += self.captures.stalled(stall, now)
        elif self.captures.early.suspicion is not None:
            out += self.captures.go_on(now)
        else:
            out += self._other_reasons(now, hears)
        if self.round is not None:
            out += self.captures.finish(now, wall)
        return out

    def rest_s(self, now: float) -> float:
        """Seconds until the next tick: fewer while this may be a stall."""
        close = self.captures.early.suspicion is not None or self.watchdog.quiet(now)
        return _CLOSE_S if close else self.settings.interval_s

    def _hearing(self, members: Members, now: float) -> Hearing:
        if now - self.watchdog.last_event < _STANDS_S and self._begin.watching:
            return Hearing()
        return hearing(
            self.nodes.values(),
            self.watchdog.ranks,
            self.watchdog.last_event,
            now,
            expected=members.expected,
        )

    def _other_reasons(self, now: float, hears: Hearing) -> list[Instruction]:
        """The end of the job, evidence of a stall, a slow rank, or a person's wish."""
        watch = self.watchdog
        if self.captures.free and self._end.tick(now, watch.living, watch.lost):
            return self.captures.ended(watch.lost, now)
        late = self._rendezvous.tick(self.nodes.values(), watch.living)
        if late:
            return self.captures.unstarted(late, now)
        suspicion = self.watchdog.suspicion(now, hears) if self.captures.free else None
        if suspicion is not None:
            return self.captures.suspect(suspicion, hears, now)
        slow = self._slow(now)
        return self.captures.asked(now) if slow is None else self.captures.straggle(slow, now)

    def _slow(self, now: float) -> Straggler | None:
        if not self.captures.free or self.watchdog.stalled:
            self.stragglers.forget()
            return None
        return self.stragglers.tick(now, self.watchdog.living)

    def switch_trace(self, wanted: Request) -> list[Instruction]:
        """Have all agents, also those that come later, switch the call traces of their ranks."""
        self.trace = Trace(wanted)
        return [Send(peer, self.trace) for peer in self.table.direct()]

    def dismiss(self) -> list[Instruction]:
        """The collector will not come back: the agents may end, also those that speak later."""
        self._dismissing = True
        return [Send(peer, Dismissed()) for peer in self.table.direct()]

    def deserted(self) -> bool:
        """Whether all who speak with this collector itself have said goodbye."""
        return not self.table.direct()

    def _remember(self) -> Remember:
        unacked, self._unacked = self._unacked, {}
        acks = [Send(peer, Ack(self.positions[agent].seq)) for agent, peer in unacked.items()]
        return Remember(acks)

    def ask(self, words: str) -> None:
        """A person wants a capture, and says why."""
        self.captures.ask(words)

    @property
    def round(self) -> Round | None:
        """The capture that is under way."""
        return self.captures.round

    def concluded(self, id: str, status: str, now: float) -> list[Instruction]:
        """The diagnosis of a capture: "healthy" takes a stall back."""
        return self.captures.concluded(id, status, now)
