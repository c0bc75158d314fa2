"""What the page, the metrics and `top` may see of the collector: fed inside its loop, read from any other thread.

`take` and `look` run in the collector's loop and cost microseconds; `rows` runs in the reader's thread, which so pays for
its own work. The core knows nothing of its readers, and no reader can hold it up: the lock is held for one assignment.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from msgspec import Struct, field, structs

from ..messages import RankNow
from ..standing import Row, state_of
from .state import Core, Counters

MAX_ROWS = 131_072  # a peer that claims a larger world must not fill the memory
_BEHIND_S = 1.5  # reports of two nodes may be so far apart: shorter waits are not told from the way
_SMOOTH = 0.1  # of a new report


class Seen(Struct, frozen=True):
    """The last word of a rank; `event` is its last progress by the collector's clock."""

    node: str
    told: RankNow
    event: float
    waits: float = -1.0  # percent of its time that it waits for its peers, smoothed; -1 where nothing tells


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
        self._lock = threading.Lock()
        self._seen: dict[int, Seen] = {}
        self._dirty: dict[int, Seen] = {}
        core.observer = self.take

    # ----------------------------------------------------------------- in the collector's loop

    def take(self, node: str, ranks: list[RankNow], late_s: float, now: float) -> None:
        """What the core has taken of one node; it was said `late_s` ago."""
        came = now - late_s
        with self._lock:
            for told in ranks:
                self._dirty[told.rank] = Seen(node, told, came - told.idle_s)

    def look(self, now: float, wall: float) -> None:
        """Once a second: the nodes and the core's own state."""
        core, silent_s = self.core, self.core.settings.silent_s
        nodes = [
            NodeNow(n.name, len(n.ranks), now - n.heard if now - n.heard > silent_s and not n.left else 0.0, n.left)
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
        self.captures = Captures(old.count + 1, old.capture_s + capture_s, old.diagnose_s + diagnose_s, capture_s)
        self.concluded += 1

    # ----------------------------------------------------------------- in the one reader's thread

    def rows(self) -> tuple[list[Row], Now]:
        """Every rank from 0 on, those that nobody has reported too, and the collector of the last second.

        Only one thread may call it: it alone owns what it has collected so far.
        """
        with self._lock:
            fresh, self._dirty = self._dirty, {}
        for rank, one in fresh.items():
            self._seen[rank] = _smoothed(self._seen.get(rank), one)
        now = self.now
        # Between two looks time goes on: a rank that reported since must not appear to be of the future.
        mono = max(now.mono, time.monotonic()) if now.mono else 0.0
        silent = {n.name for n in now.nodes if n.silent_s}
        size = min(MAX_ROWS, max(now.world_size, max(self._seen, default=-1) + 1))
        rows = [_row(rank, self._seen.get(rank), mono, silent) for rank in range(size)]
        _mark_behind(rows)
        _mark_lag(rows, self._seen)
        return rows, now


def _row(rank: int, seen: Seen | None, mono: float, silent: set[str]) -> Row:
    if seen is None:
        return Row(rank)
    told, idle = seen.told, max(0.0, mono - seen.event)
    state = state_of(told, idle, seen.node in silent)
    return Row(rank, state, seen.node, idle, told.iteration, told.phase, told.op, told.seq, told.pid, told.box)


def _smoothed(old: Seen | None, new: Seen) -> Seen:
    told = float(new.told.waits)
    if told < 0 or old is None or old.waits < 0:
        return structs.replace(new, waits=told if told >= 0 or old is None else old.waits)
    return structs.replace(new, waits=old.waits + (told - old.waits) * _SMOOTH)


def _mark_lag(rows: list[Row], seen: dict[int, Seen]) -> None:
    """Who comes last waits least: by how much of the time others wait more. Shares of time need no common clock."""
    known = {r.rank: seen[r.rank].waits for r in rows if r.state == "moving" and seen[r.rank].waits >= 0}
    if len(known) < 2:
        return
    most = max(known.values())
    for rank, waits in known.items():
        rows[rank].lag_s = (most - waits) / 100


def _mark_behind(rows: list[Row]) -> None:
    """Whoever is not in an operation while others have waited for a while: for how long the first of those has waited."""
    longest = max((r.idle_s for r in rows if r.state == "waiting"), default=0.0)
    if longest < _BEHIND_S:
        return
    for row in rows:
        if row.state in ("outside", "working", "still", "silent", "gone", "stopped", "blocked"):
            row.behind_s = longest
