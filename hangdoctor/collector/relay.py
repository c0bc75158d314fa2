"""A collector in the middle of a tree: changes go up merged, captures fan down, answers go up as
they come.

To those below it is a collector, to the one above it an agent: what it has acknowledged lies in its
own spool until the one above has acknowledged it. No I/O and no clock here, as in `state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct, structs

from ..text.durations import duration
from ..transport.messages import (
    MOST_EVENTS,
    Capture,
    Captured,
    Declined,
    Dismissed,
    EventNow,
    FromAgent,
    FromCollector,
    Level,
    NodeNews,
    Past,
    RankNow,
    Relayed,
    Trace,
)
from ..watch.live_ranks import LastWord
from ..watch.stall_watch import Settings as Bounds
from ..watch.stall_watch import StallWatch
from .core import Core
from .instructions import Instruction, Log, Node, Position, Send, Settings

_RANKS = 4000  # in one message
_NODES = 2000
_EVENT_ROWS = 4  # an event is as long as that many ranks
_SIGN_OF_LIFE_S = 2.0


class _News(Struct):
    """What changed on one node since the last flush."""

    ranks: dict[int, LastWord] = {}
    timeout_s: float = 0.0
    past: Past | None = None
    events: list[EventNow] = []  # their age is the moment at which they happened

    def rest(self) -> _News | None:
        """What is left after a report, which has room for some events; None where nothing is."""
        left = self.events[MOST_EVENTS:]
        return _News(timeout_s=self.timeout_s, past=self.past, events=left) if left else None


class Relay(Core):
    """The core of a collector with a parent. `keep` puts a report into the spool, `up` sends an
    answer at once.
    """

    def __init__(
        self,
        settings: Settings,
        positions: dict[str, Position] | None,
        keep: Callable[[Relayed], None],
        up: Callable[[FromAgent], bool],
    ) -> None:
        super().__init__(settings, StallWatch(Bounds()), positions)
        self.keep, self.up = keep, up
        self._fresh: dict[str, _News] = {}
        # All that is known of each node, for a parent that was restarted.
        self._last: dict[str, _News] = {}
        self._flushed_at = -1e18
        self._wanted = ""  # id of the capture under way
        self._open: set[str] = set()  # nodes that have not answered
        self._deadline = 0.0

    # ----------------------------------------------------------------- from below

    def _news(self, node: Node, news: NodeNews, late_s: float, now: float) -> None:
        at = now - late_s
        words = {told.rank: LastWord(node.name, told, at - told.idle_s) for told in news.ranks}
        for table in (self._fresh, self._last):
            known = table.setdefault(node.name, _News())
            known.timeout_s = news.timeout_s
            known.past = news.past or known.past
            known.ranks.update(words)
        fresh = self._fresh[node.name]
        fresh.events += [structs.replace(event, age_s=at - event.age_s) for event in news.events]
        node.ranks.update({rank.rank: rank.over for rank in news.ranks})

    def _forget(self, node: str, ranks: set[int]) -> None:
        for known in (self._fresh.get(node), self._last.get(node)):
            if known is not None:
                known.ranks.clear()

    def tell_all(self) -> None:
        """The next report says everything, not only what has changed: the one above begins anew."""
        for name, known in self._last.items():
            old = {number: _of_the_past(word) for number, word in known.ranks.items()}
            fresh = self._fresh.get(name, _News())
            self._fresh[name] = _News(
                old | fresh.ranks, known.timeout_s, known.past, events=fresh.events
            )

    def _answer(
        self, node: Node, message: Captured | Declined, now: float, wall: float
    ) -> list[Instruction]:
        name = node.name if node.name not in self.relays else message.node or ""
        known = self.nodes.get(name)
        if (
            message.id != self._wanted
            or known is None
            or known.peer != node.peer
            or name not in self._open
        ):
            return []
        self._open.discard(name)
        message.node = name
        if not self.up(message):
            return [Log(f"{name}: its answer could not be forwarded")]
        return []

    # ----------------------------------------------------------------- from above

    def told(self, message: FromCollector, now: float) -> list[Instruction]:
        """What the parent wants of those below."""
        if isinstance(message, Capture):
            return self._fan_out(message, now)
        if isinstance(message, Trace):
            return self.switch_trace(message.wanted)
        if isinstance(message, Level):
            return [Send(peer, message) for peer in self.table.direct()]
        return self.dismiss() if isinstance(message, Dismissed) else []

    def _fan_out(self, wanted: Capture, now: float) -> list[Instruction]:
        # One that is under way is no longer waited for above; agents begin this one after it.
        self._wanted, self._deadline = wanted.id, now + wanted.timeout_s + 0.5
        self._open = set(self.nodes)
        for name, node in self.nodes.items():
            if node.via:
                continue
            if node.left:
                self._give_up(name, "its agent has left")
            elif not node.speaks(now, self.settings.silent_s):
                quiet = duration(now - node.heard)
                self._give_up(name, f"no message from its agent for {quiet}")
        below = structs.replace(wanted, timeout_s=max(1.0, wanted.timeout_s - 0.5))
        return [Send(peer, below) for peer in self.table.direct()]

    def _give_up(self, name: str, why: str) -> None:
        self._open.discard(name)
        self.up(Captured(self._wanted, error=why, node=name))

    # ----------------------------------------------------------------- time

    def tick(self, now: float, wall: float) -> list[Instruction]:
        """Merge what came since the last tick into reports, keep them, then acknowledge."""
        if self._open and now > self._deadline:
            for name in sorted(self._open):
                self._give_up(name, "its agent did not answer in time")
        if not self.nodes or (not self._fresh and now - self._flushed_at < _SIGN_OF_LIFE_S):
            return self._acknowledge()
        self._flushed_at = now
        for nodes in self._batches(now):
            self.keep(Relayed(0, 0, nodes))
        self._fresh = {name: rest for name, known in self._fresh.items() if (rest := known.rest())}
        return self._acknowledge()

    def _batches(self, now: float) -> Iterator[list[NodeNews]]:
        batch: list[NodeNews] = []
        count = 0
        for node in self.nodes.values():
            news = self._news_of(node, now)
            batch.append(news)
            count += len(news.ranks) + _EVENT_ROWS * len(news.events)
            count += len(news.past.phases) if news.past is not None else 0
            if count >= _RANKS or len(batch) >= _NODES:
                yield batch
                batch, count = [], 0
        if batch:
            yield batch

    def _news_of(self, node: Node, now: float) -> NodeNews:
        """What is new of one node, ages as of now: `late_s` adds what the report lies here."""
        news = NodeNews(
            node=node.name,
            job=node.job,
            world_size=node.world_size,
            silent_s=max(0.0, now - node.heard),
            left=node.left,
            began=node.began,
        )
        fresh = self._fresh.get(node.name)
        if fresh is not None:
            news.timeout_s, news.past = fresh.timeout_s, fresh.past
            news.ranks = [_aged(word, now) for word in fresh.ranks.values()]
            for event in fresh.events[:MOST_EVENTS]:
                age_s = max(0.0, now - event.age_s)
                news.events.append(structs.replace(event, age_s=age_s))
        return news

    def _acknowledge(self) -> list[Instruction]:
        return [self._remember()] if self._unacked else []


def _aged(word: LastWord, now: float) -> RankNow:
    """A copy with the age of now: the word itself stays as it was said."""
    idle_s = max(0.0, now - word.event)
    since_said = idle_s - word.told.idle_s
    over_s = max(0.0, word.told.over_s + since_said) if word.told.over else 0.0
    return structs.replace(word.told, idle_s=idle_s, over_s=over_s)


def _of_the_past(word: LastWord) -> LastWord:
    """Said again later: what the rank waited then tells nothing of now."""
    return structs.replace(word, told=structs.replace(word.told, waits=-1))
