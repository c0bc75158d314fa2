"""A job, its agents and their collector's core in simulated time: hours pass in seconds.

Four nodes with two ranks each. The plan of the job is a sequence of `Pause`: what the ranks do
until the next progress.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from msgspec import Struct

from hangdoctor.collector.core import Core
from hangdoctor.collector.instructions import Conclude, Instruction, Send, Settings
from hangdoctor.model.capture import NodeCapture, RankCapture
from hangdoctor.transport import capture_codec
from hangdoctor.transport import messages as msg
from hangdoctor.watch.stall_watch import Learned, StallWatch
from hangdoctor.watch.stall_watch import Settings as Bounds

RANKS, NODES = 8, 4
FOREVER = 1e9
LATE_S = 0.3  # a capture takes


class Pause(Struct, frozen=True):
    """Until the next progress. The ranks named are elsewhere, all others wait in one operation."""

    seconds: float
    phase: str = ""
    outside: tuple[int, ...] = ()
    busy: tuple[int, ...] = ()
    stopped: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    apart: tuple[int, ...] = ()  # in another operation


Plan = Iterator[Pause]
STEP = 0.2
FAULTS = {
    "died": Pause(FOREVER, dead=(5,)),
    "stopped": Pause(FOREVER, stopped=(4,)),
    "outside": Pause(FOREVER, outside=(7,)),
    "apart": Pause(FOREVER, apart=(3,)),
}


def steady(seconds: float) -> Iterator[Pause]:
    """Steps, in each of which another rank comes last."""
    for number in range(int(seconds / STEP)):
        yield Pause(STEP, outside=(number % 8,))


def stuck(fault: Pause, after: float = 60.0) -> Plan:
    yield from steady(after)
    yield fault


class Simulation:
    """`verdicts`: seconds between the last progress and each capture that was concluded as a hang."""

    def __init__(
        self,
        plan: Plan,
        learned: Learned | None = None,
        seed: int = 0,
        unwatched_s: float = 0.0,
        expected: frozenset[str] = frozenset(),
        slow: dict[int, float] | None = None,
    ) -> None:
        """`unwatched_s`: so long the job has run when its agents and the collector are started.

        `slow`: nodes whose first report, made at once, takes so many seconds to come through.
        """
        self.plan, self.chance = plan, random.Random(seed)
        self.core = Core(Settings(expected=expected), StallWatch(Bounds(), learned), session="s")
        self.now = 1000.0
        self.event, self.pause = self.now, Pause(0.0)
        self.seq = [0] * NODES
        self.due = [self.now + n * 0.25 for n in range(NODES)]
        self.told: list[object] = [None] * NODES
        self.ticked = 0.0
        self.away: set[int] = set()  # nodes that neither report nor answer
        self.answers: list[tuple[float, int, str]] = []
        self.late_s = LATE_S
        self.asked: list[tuple[str, int]] = []  # id of a capture, answers that were still due
        self.verdicts: list[float] = []
        self.concluded: list[Conclude] = []
        self.judge: Callable[[Conclude], str] = lambda one: "hang"
        self.past = self.unwatched(unwatched_s)
        self.due = [self.now + n * 0.25 for n in range(NODES)]
        self.slow = {node: self.now + seconds for node, seconds in (slow or {}).items()}
        self.begun = self.now
        for node in range(NODES):
            self.hello(node)

    def unwatched(self, seconds: float) -> msg.Past | None:
        """Let the job run alone; what its boxes remember of that."""
        end, found = self.now + seconds, dict[str, list[float]]()
        while self.event + self.pause.seconds <= end:
            found.setdefault(self.pause.phase, []).append(self.pause.seconds)
            self.event += self.pause.seconds
            self.pause = next(self.plan)
        self.now = end
        phases = [
            msg.PastPhase(n, len(p), sorted(p)[max(0, len(p) - 4)], max(p))
            for n, p in found.items()
        ]
        return msg.Past(sum(p.pauses for p in phases), phases) if seconds else None

    def hello(self, node: int, agent: str = "") -> None:
        """An agent begins; another name is a restart."""
        self.agent = getattr(self, "agent", {})
        self.agent[node] = agent or f"a{node}"
        self.seq[node], self.told[node] = 0, None
        self.say(node, msg.Hello(self.agent[node], f"n{node}", "job", RANKS))

    def say(self, node: int, message: msg.FromAgent) -> None:
        peer = self.agent[node].encode()
        self.carry_out(self.core.received(peer, msg.encode(message), self.now, 0.0))

    def carry_out(self, instructions: list[Instruction]) -> None:
        for one in instructions:
            if isinstance(one, Send) and isinstance(one.message, msg.Capture):
                node = next(n for n, a in self.agent.items() if a.encode() == one.peer)
                due = [a for a in self.answers if a[2] != one.message.id]
                self.asked.append((one.message.id, len(due)))
                ready = self.now + one.message.settle_s + self.late_s
                self.answers.append((ready, node, one.message.id))
            elif isinstance(one, Conclude):
                status = self.judge(one)
                self.concluded.append(one)
                if status == "hang":
                    self.verdicts.append(self.now - self.event)
                self.carry_out(self.core.concluded(one.id, status, self.now))

    def rank(self, number: int) -> msg.RankNow:
        """What its agent sees of it."""
        p = self.pause
        idle = max(0.0, self.now - self.event)
        inside = number not in (*p.outside, *p.busy, *p.stopped, *p.dead)
        return msg.RankNow(
            number,
            10 + number,
            idle,
            phase=p.phase,
            op="broadcast" if number in p.apart else "all_reduce",
            seq=1,
            inside=inside,
            busy=number in p.busy,
            box=True,
            over=number in p.dead,
            held="T" if number in p.stopped else "",
        )

    def report(self, node: int) -> None:
        if self.slow.get(node, 0.0) > self.now:
            return
        past = self.past if not self.seq[node] else None
        late_s = self.now - self.begun if self.slow.pop(node, None) is not None else 0.0
        ranks = [self.rank(r) for r in (2 * node, 2 * node + 1)]
        news = (self.event, self.pause)
        changed = ranks if news != self.told[node] else []
        self.told[node] = news
        self.seq[node] += 1
        for rank in changed:
            rank.idle_s = max(0.0, rank.idle_s - late_s)
        report = msg.Report(
            seq=self.seq[node],
            oldest=1,
            at=0.0,
            ranks=changed,
            late_s=late_s,
            timeout_s=1800.0,
            past=past,
        )
        self.say(node, report)

    def step(self) -> None:
        """To whatever comes next: progress, a report, an answer or a tick."""
        moments = [self.event + self.pause.seconds, min(self.due)]
        moments.append(self.ticked + self.core.rest_s(self.now))
        moments += [at for at, _, _ in self.answers]
        self.now = max(self.now, min(moments))
        while self.event + self.pause.seconds <= self.now:
            self.event += self.pause.seconds
            self.pause = next(self.plan)
        for node in range(NODES):
            if self.due[node] <= self.now:
                stands = 1.6 < self.now - self.event < 12
                self.due[node] = self.now + (0.5 if stands else 1.0) + 0.05 * self.chance.random()
                if node not in self.away:
                    self.report(node)
        self.answer()
        if self.now >= self.ticked + self.core.rest_s(self.now):
            self.ticked = self.now
            self.carry_out(self.core.tick(self.now, 0.0))

    def answer(self) -> None:
        ready = [a for a in self.answers if a[0] <= self.now]
        self.answers = [a for a in self.answers if a[0] > self.now]
        for _, node, id in ready:
            if node not in self.away:
                ranks = [
                    RankCapture(pid=10 + r, rank=r, world_size=RANKS)
                    for r in (2 * node, 2 * node + 1)
                ]
                body = capture_codec.pack_capture(NodeCapture(f"n{node}", "job", ranks))
                self.say(node, msg.Captured(id, body))

    def run(self, seconds: float, until_verdict: bool = False) -> list[float]:
        """Let time pass; the verdicts that came meanwhile."""
        end, before = self.now + seconds, len(self.verdicts)
        while self.now < end:
            self.step()
            if until_verdict and len(self.verdicts) > before:
                break
        return self.verdicts[before:]

    def jump(self, seconds: float) -> None:
        """The collector's machine does not move, alone: its clock goes on."""
        self.now += seconds
        self.event += seconds
        self.due = [at + seconds for at in self.due]
