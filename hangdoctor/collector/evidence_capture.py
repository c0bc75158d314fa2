"""A capture on evidence: begun before the pause is a stall, and held until it is one.

When the job goes on before, or a node that was silent speaks again, the capture is dropped: no
incident, one line in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..model.capture import JobCapture
from ..watch.stall_evidence import Hearing
from ..watch.stall_watch import StallWatch, Suspicion
from .instructions import Node

_SILENT_S = 2.5  # an agent whose ranks stand still reports each second
_SILENT_VIA_S = 5.0  # ... and a collector between us every two
_FRESH_S = 1.8
_FRESH_VIA_S = 3.8
_LOOK_S = 0.9  # between the last progress and a report that shows that there was no more


class Early:
    """At most one capture on evidence, from the suspicion to the verdict or to its end."""

    def __init__(self) -> None:
        self.suspicion: Suspicion | None = None
        self.held: JobCapture | None = None
        self.id = ""  # of its round
        self.silent: tuple[str, ...] = ()  # nodes, when it began
        self.begun = 0.0

    def begin(self, suspicion: Suspicion, id: str, hearing: Hearing, now: float) -> None:
        """The round with this id was begun on evidence."""
        self.suspicion, self.id, self.held = suspicion, id, None
        self.silent, self.begun = hearing.nodes, now

    def end(self) -> None:
        """It is concluded, or dropped."""
        self.suspicion, self.held, self.id = None, None, ""

    def is_void(self, watchdog: StallWatch, nodes: Mapping[str, Node]) -> bool:
        """Whether what it rests on is no more."""
        if self.suspicion is None or watchdog.goes_on(self.suspicion):
            return True
        return any(n in nodes and nodes[n].heard > self.begun for n in self.silent)

    def is_due(self, watchdog: StallWatch, nodes: Iterable[Node]) -> bool:
        """Whether the capture is here and the pause was long enough, by what nodes have said."""
        if self.suspicion is None or self.held is None:
            return False
        # Until the newest report nothing had moved; what was since then is still on its way.
        heard = max((n.heard for n in nodes), default=0.0)
        return heard - watchdog.last_event >= self.suspicion.commit_s


def hearing(
    nodes: Iterable[Node],
    ranks: int,
    last_event: float,
    now: float,
    *,
    expected: frozenset[str] = frozenset(),
) -> Hearing:
    """How well all nodes are heard.

    `ranks` is how many are known, `last_event` the job's last progress.
    """
    known = list(nodes)
    working = [n for n in known if not n.left and not all(n.ranks.values())]
    silent = [n for n in working if _is_silent(n, now)]
    heard = [n for n in working if not _is_silent(n, now)]
    arrived = _have_come(expected, known)
    fresh = all(_is_fresh(n, now) and n.heard >= last_event + _LOOK_S for n in heard)
    return Hearing(
        complete=arrived or ranks >= max((n.world_size for n in known), default=0),
        arrived=arrived,
        fresh=fresh and len(heard) > len(silent),
        silent=alive(silent),
        nodes=tuple(n.name for n in silent),
    )


def _have_come(expected: frozenset[str], nodes: list[Node]) -> bool:
    """Whether each node that is expected, where that is known, has shown its ranks."""
    return bool(expected) and expected <= {n.name for n in nodes if n.ranks}


def _is_silent(node: Node, now: float) -> bool:
    return now - node.heard > (_SILENT_VIA_S if node.via else _SILENT_S)


def _is_fresh(node: Node, now: float) -> bool:
    return now - node.heard <= (_FRESH_VIA_S if node.via else _FRESH_S)


def alive(nodes: Iterable[Node]) -> frozenset[int]:
    """The ranks of these nodes that had not ended when they were heard last."""
    found: set[int] = set()
    for node in nodes:
        found.update(rank for rank, over in node.ranks.items() if not over)
    return frozenset(found)
