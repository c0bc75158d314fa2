"""Simulated hours of a restless but healthy job against the real core of the collector, on a fake
clock.

Two nodes of four ranks report each second. Beside steps there are a compilation at the start, an
evaluation each hour, a checkpoint each half hour that rank 0 writes while the others wait, data
hiccups, loaders that refill, agents that start anew, a network that goes and comes back with late
reports, a wall clock that jumps, a collector that does not move, and one that is started anew.
Every capture that the core asks for counts as a false alarm, whatever a diagnosis would say of it.
"""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Sequence

import msgspec
import psutil
from msgspec import Struct

from hangdoctor.clock import FakeClock
from hangdoctor.collector.core import Core
from hangdoctor.collector.instructions import (
    Conclude,
    Instruction,
    Position,
    Remember,
    Send,
    Settings,
)
from hangdoctor.transport import messages as msg
from hangdoctor.watch.stall_watch import Learned, StallWatch
from hangdoctor.watch.stall_watch import Settings as Bounds

NODES, RANKS = 2, 4
HOUR = 3600.0
_SPOOL = 600  # reports that a node keeps while no one takes them


class Result(Struct):
    hours: float
    reports: int = 0
    events: dict[str, int] = {}
    alarms: list[str] = []
    lost: int = 0  # reports
    doubled: int = 0
    rss_mb: list[float] = []  # at the end of each sixth of the time
    objects: list[int] = []


class Job:
    """When any rank made progress last, and what goes on."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.kind, self.until = "compile", 60.0
        self.event = 0.0
        self.iteration = 0
        self.seen: dict[str, int] = {}

    def step(self, now: float) -> None:
        """One second of the job."""
        if self.kind != "train" and now >= self.until:
            self.kind = "train"
        if self.kind == "train":
            self._begin_something(now)
        if self.kind == "train":
            self.iteration += 3
            self.event = now - self.chance.uniform(0.0, 0.4)
        elif self.kind == "evaluation" and now - self.event > self.chance.uniform(0.5, 4.0):
            self.event = now - self.chance.uniform(0.0, 0.3)

    def _begin_something(self, now: float) -> None:
        chance = self.chance
        for kind, every, length in (
            ("evaluation", HOUR, chance.uniform(120, 300)),
            ("checkpoint", HOUR / 2, chance.uniform(15, 80)),
            ("hiccup", 300.0, chance.uniform(1.0, 4.5)),
            ("refill", 2 * HOUR, chance.uniform(10, 70)),
        ):
            if chance.random() < 1.0 / every:
                self.kind, self.until = kind, now + length
                self.seen[kind] = self.seen.get(kind, 0) + 1
                return

    def ranks(self, node: int, now: float) -> list[msg.RankNow]:
        """What the agent of a node sees now."""
        chance, kind = self.chance, self.kind
        idle = max(0.0, now - self.event)
        found = []
        for rank in range(node * RANKS, (node + 1) * RANKS):
            writes = kind == "checkpoint" and rank == 0
            busy = kind in ("compile", "refill") or writes
            waits = {"checkpoint": 0 if writes else 100}.get(kind, chance.randrange(10, 60))
            told = msg.RankNow(
                rank,
                pid=100 + rank,
                idle_s=idle + chance.uniform(0.0, 0.05),
                iteration=self.iteration,
                op="all_reduce",
                seq=self.iteration * 4,
                inside=not busy,
                busy=busy,
                box=True,
                waits=waits,
            )
            found.append(told)
        return found


class Agent:
    """One node's: says hello until welcome, numbers its reports, keeps them until they are
    acknowledged.
    """

    def __init__(self, node: int) -> None:
        self.node = node
        self.starts = 0
        self.peer = b""
        self.away_until = 0.0
        self.restarting = False
        self.begin()

    def begin(self) -> None:
        """Start anew, as another peer."""
        self.starts += 1
        self.peer = b"peer%d.%d" % (self.node, self.starts)
        self.welcome = False
        self._seq = self._sent = 0
        self._spool: list[tuple[float, msg.Report]] = []

    def hello(self) -> msg.Hello:
        """Its first message."""
        return msg.Hello(
            f"agent{self.node}.{self.starts}", f"n{self.node}", "slurm:1.0", NODES * RANKS
        )

    def look(self, now: float, ranks: list[msg.RankNow]) -> None:
        """Put a report into the spool; of too many the oldest is lost."""
        self._seq += 1
        self._spool = [*self._spool, (now, msg.Report(self._seq, 1, 0.0, ranks))][-_SPOOL:]

    def unsent(self, now: float) -> list[msg.Report]:
        """Reports that wait for the network."""
        found = []
        for at, report in self._spool:
            if report.seq > self._sent:
                report.late_s, report.oldest = now - at, self._spool[0][1].seq
                found.append(report)
        self._sent = self._seq
        return found

    def hear(self, message: msg.FromCollector) -> None:
        """Take what has been acknowledged out of the spool."""
        if isinstance(message, msg.Welcome):
            self.welcome, self._sent = True, message.acked
        if isinstance(message, msg.Welcome | msg.Ack):
            self._spool = [(at, report) for at, report in self._spool if report.seq > message.acked]
        elif isinstance(message, msg.WhoAreYou | msg.Rejected):
            self.welcome = False


class Soak:
    """Feeds the core, and carries out what it says."""

    def __init__(self, hours: float, seed: int) -> None:
        self.result = Result(hours)
        self.chance = random.Random(seed)
        self.clock = FakeClock()
        self.job = Job(self.chance)
        self.agents = [Agent(n) for n in range(NODES)]
        self.core = self._core({}, Learned())

    def _core(self, positions: dict[str, Position], learned: Learned) -> Core:
        return Core(Settings(), StallWatch(Bounds(), learned), positions)

    def run(self) -> Result:
        """All hours, second by second."""
        seconds = int(self.result.hours * HOUR)
        process = psutil.Process()
        sixth = max(1, math.ceil(seconds / 6))
        for second in range(1, seconds + 1):
            self.clock.sleep(1.0)
            self._second()
            if second % sixth == 0 or second == seconds:
                gc.collect()
                self.result.rss_mb.append(round(process.memory_info().rss / 1e6, 1))
                self.result.objects.append(len(gc.get_objects()))
        positions = self.core.positions.values()
        self.result.lost, self.result.doubled = (
            sum(p.lost for p in positions),
            sum(p.doubled for p in positions),
        )
        self.result.events.update(self.job.seen)
        return self.result

    def _second(self) -> None:
        self.job.step(self.clock.monotonic())
        self._mishaps(self.clock.monotonic())
        now, wall = self.clock.monotonic(), self.clock.wall()
        for agent in self.agents:
            if agent.restarting and now < agent.away_until:
                continue
            if agent.restarting:
                agent.restarting = False
                agent.begin()
            agent.look(now, self.job.ranks(agent.node, now))
            if now >= agent.away_until:
                self._talk(agent, now, wall)
        self._carry_out(self.core.tick(now, wall), now, wall)

    def _talk(self, agent: Agent, now: float, wall: float) -> None:
        if not agent.welcome:
            self._receive(agent.peer, agent.hello(), now, wall)
        if not agent.welcome:
            return
        for report in agent.unsent(now):
            self.result.reports += 1
            self._receive(agent.peer, report, now, wall)

    def _receive(self, peer: bytes, message: msg.FromAgent, now: float, wall: float) -> None:
        self._carry_out(self.core.received(peer, msg.encode(message), now, wall), now, wall)

    def _carry_out(self, instructions: Sequence[Instruction], now: float, wall: float) -> None:
        for one in instructions:
            if isinstance(one, Send) and isinstance(one.message, msg.Capture):
                self._receive(
                    one.peer, msg.Captured(one.message.id, error="a simulation"), now, wall
                )
            elif isinstance(one, Send):
                self._hear(one)
            elif isinstance(one, Remember):
                self._carry_out(one.acks, now, wall)
            elif isinstance(one, Conclude):
                self.result.alarms.append(f"{now / HOUR:.2f} h, {self.job.kind}: {one.reason}")
                self._carry_out(self.core.concluded(one.id, "healthy", now), now, wall)

    def _hear(self, sent: Send) -> None:
        for agent in self.agents:
            if agent.peer == sent.peer:
                agent.hear(sent.message)

    # --------------------------------------------------------- what goes wrong beside a healthy job

    def _mishaps(self, now: float) -> None:
        chance = self.chance
        for what, every in (
            ("agent restart", HOUR),
            ("network away", 6 * HOUR),
            ("wall clock jump", 3 * HOUR),
            ("collector stood still", 12 * HOUR),
            ("collector restart", 8 * HOUR),
        ):
            if chance.random() >= 1.0 / every:
                continue
            self.result.events[what] = self.result.events.get(what, 0) + 1
            if what == "agent restart":
                agent = chance.choice(self.agents)
                agent.restarting, agent.away_until = True, now + chance.uniform(1, 25)
            elif what == "network away":
                length = chance.uniform(3, 90)
                for agent in self.agents:
                    agent.away_until = max(agent.away_until, now + length)
            elif what == "wall clock jump":
                self.clock.step_wall(chance.uniform(-2 * HOUR, 2 * HOUR))
            elif what == "collector stood still":
                self._stand_still(chance.uniform(10, 300))
            else:
                self._restart_collector()

    def _stand_still(self, length: float) -> None:
        """The collector's machine; the ranks go on, and their agents keep what they see."""
        for _ in range(int(length)):
            self.clock.sleep(1.0)
            now = self.clock.monotonic()
            self.job.step(now)
            for agent in self.agents:
                agent.look(now, self.job.ranks(agent.node, now))

    def _restart_collector(self) -> None:
        """With what its memory keeps, as `cli.concluding.Memory` writes it."""
        positions, learned = self.core.positions, self.core.watchdog.learned
        kept = msgspec.json.encode(positions), msgspec.json.encode(learned)
        self.core = self._core(
            msgspec.json.decode(kept[0], type=dict[str, Position]),
            msgspec.json.decode(kept[1], type=Learned),
        )


def simulate(hours: float, seed: int = 11) -> Result:
    """`hours` of the job; the same for the same seed."""
    return Soak(hours, seed).run()
