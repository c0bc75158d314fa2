"""What the page and the metrics may see of the collector: collected in its loop, read by the page's own process.

`take` and `look` cost microseconds; what a reader makes of it is the reader's own work. The core knows nothing of its readers.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct, field, structs

from ..transport.messages import RankNow
from ..watch.arrival_lag import smoothed
from .state import Core, Counters

MAX_ROWS = 131_072  # a peer that claims a larger world must not fill the memory


class LastWord(Struct, frozen=True, array_like=True):
    """The last word of a rank; `event` is its last progress by the collector's clock."""

    node: str
    told: RankNow
    event: float
    waits: float = -1.0  # percent of its time that it waits for its peers, smoothed; -1 if unknown


class NodeNow(Struct):
    name: str
    ranks: int
    silent_s: float = 0.0  # 0 while it is heard
    left: bool = False


class Now(Struct):
    """The collector itself at one moment; `mono` is its clock, by which events are dated."""

    mono: float = 0.0
    wall: float = 0.0
    jobs: dict[str, int] = {}  # key -> nodes
    world_size: int = 0
    nodes: list[NodeNow] = []
    agents: int = 0  # connected and heard
    stalled: bool = False
    warm: bool = False
    capturing: str = ""  # its reason
    capture_asked: int = 0
    capture_answered: int = 0
    counters: Counters = field(default_factory=Counters)
    learned_s: float = 0.0  # the longest pause that the job showed to be normal


class Captures(Struct):
    """How long captures took: from the first request until all have answered, and diagnosis with saving."""

    count: int = 0
    capture_s: float = 0.0
    diagnose_s: float = 0.0
    last_s: float = 0.0


class View:
    """One for each collector."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.now = Now()
        self.captures = Captures()
        self.concluded = 0  # changes with every capture that was dealt with
        self._seen: dict[int, LastWord] = {}
        self._dirty: dict[int, LastWord] = {}
        self._waits: dict[int, float] = {}
        core.observer = self.take

    # ----------------------------------------------------------------- in the collector's loop

    def take(self, node: str, ranks: list[RankNow], late_s: float, now: float) -> None:
        """What the core has taken of one node; it was said `late_s` ago."""
        came = now - late_s
        for told in ranks:
            if told.rank >= MAX_ROWS:
                continue
            # Here, not where it is read: how late a rank is must not depend on who looks, and how often.
            share = self._waits[told.rank] = smoothed(
                self._waits.get(told.rank, -1.0), float(told.waits)
            )
            self._dirty[told.rank] = self._seen[told.rank] = LastWord(
                node, told, came - told.idle_s, share
            )

    def changes(self) -> dict[int, LastWord]:
        """The ranks that were reported since the call before."""
        fresh, self._dirty = self._dirty, {}
        return fresh

    def everything(self) -> dict[int, LastWord]:
        """All ranks, for a reader that begins; `changes` goes on from here."""
        self._dirty = {}
        return self._seen

    def look(self, now: float, wall: float) -> None:
        """Once a second: the nodes and the core's own state."""
        core, silent_s = self.core, self.core.settings.silent_s
        nodes = [
            NodeNow(
                n.name,
                len(n.ranks),
                now - n.heard if now - n.heard > silent_s and not n.left else 0.0,
                n.left,
            )
            for n in core.nodes.values()
        ]
        round = core.round
        rhythms = core.watchdog.learned.rhythms.values()
        self.now = Now(
            now, wall, dict(Counter(n.job for n in core.nodes.values() if n.job)),
            max((n.world_size for n in core.nodes.values()), default=0), nodes,
            sum(not n.left and not n.silent_s for n in nodes), core.watchdog.stalled, core.watchdog.learned.warm,
            round.reason if round is not None else "", len(core.nodes) if round is not None else 0,
            len(round.captures) + len(round.without) + len(round.empty) if round is not None else 0,
            structs.replace(core.counters), max((r.high_s for r in rhythms), default=0.0),
        )  # fmt: skip

    def captured(self, capture_s: float, diagnose_s: float) -> None:
        """A capture was diagnosed and dealt with; called from the thread that did it."""
        old = self.captures
        self.captures = Captures(
            old.count + 1, old.capture_s + capture_s, old.diagnose_s + diagnose_s, capture_s
        )
        self.concluded += 1
