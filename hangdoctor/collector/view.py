"""What the page and the metrics may see of the collector: collected in its loop, read by the page's
own process.

`take` and `look` cost microseconds; what a reader makes of it is the reader's own work. The core
knows nothing of its readers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from msgspec import Struct, field, structs

from ..transport.messages import RankNow
from ..watch.arrival_lag import smoothed
from ..watch.job_history import Kept
from ..watch.live_ranks import LastWord, age_s
from .core import Core, Counters
from .instructions import Node

MAX_ROWS = 131_072  # a peer that claims a larger world must not fill the memory


class NodeNow(Struct):
    """One node; `ranks` is how many it has reported so far."""

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
    missing: list[str] = []  # nodes that belong to the job and whose agents have never connected
    counters: Counters = field(default_factory=Counters)


class CaptureTimes(Struct):
    """How long captures took: from the first request until all have answered, and diagnosis with
    saving.
    """

    count: int = 0
    capture_s: float = 0.0
    diagnose_s: float = 0.0
    last_s: float = 0.0


class View:
    """One for each collector."""

    def __init__(self, core: Core, history: Callable[[], Kept] = Kept) -> None:
        self.core, self.history = core, history
        self.now = Now()
        self.captures = CaptureTimes()
        self.concluded = 0  # changes with every capture that was dealt with
        self._seen: dict[int, LastWord] = {}
        self._dirty: dict[int, LastWord] = {}
        self._waits: dict[int, float] = {}
        core.observers.append(self.take)

    # ----------------------------------------------------------------- in the collector's loop

    def take(self, node: str, ranks: list[RankNow], late_s: float, now: float) -> None:
        """What the core has taken of one node; it was said `late_s` ago."""
        came = now - late_s
        for told in ranks:
            if told.rank >= MAX_ROWS:
                continue
            # Here, not where it is read: how late a rank is must not depend on who looks, and how
            # often.
            before = self._waits.get(told.rank, -1.0)
            share = self._waits[told.rank] = smoothed(before, float(told.waits))
            word = LastWord(node, told, came - age_s(told), share)
            self._dirty[told.rank] = self._seen[told.rank] = word

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
        core = self.core
        known = core.nodes.values()
        nodes = [_node_now(n, now, core.settings.silent_s) for n in known]
        self.now = Now(
            mono=now,
            wall=wall,
            jobs=dict(Counter(n.job for n in known if n.job)),
            world_size=max((n.world_size for n in known), default=0),
            nodes=nodes,
            agents=sum(not n.left and not n.silent_s for n in nodes),
            stalled=core.watchdog.stalled,
            warm=core.watchdog.learned.warm,
            missing=sorted(core.members().expected - core.nodes.keys()),
            counters=structs.replace(core.counters),
        )
        if core.round is not None:
            self.now.capturing = str(core.round.reason)
            self.now.capture_asked = len(core.nodes)
            self.now.capture_answered = core.round.answers

    def captured(self, capture_s: float, diagnose_s: float) -> None:
        """A capture was diagnosed and dealt with; called from the thread that did it."""
        old = self.captures
        # A new one, whole at any moment: the collector's loop may be sending the old one.
        self.captures = CaptureTimes(
            count=old.count + 1,
            capture_s=old.capture_s + capture_s,
            diagnose_s=old.diagnose_s + diagnose_s,
            last_s=capture_s,
        )
        self.concluded += 1


def _node_now(node: Node, now: float, silent_s: float) -> NodeNow:
    known = NodeNow(node.name, len(node.ranks), left=node.left)
    if not node.left and not node.speaks(now, silent_s):
        known.silent_s = now - node.heard
    return known
