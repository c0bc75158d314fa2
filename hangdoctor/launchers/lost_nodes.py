"""Which nodes need not be waited for any more, decided from what is known; no I/O.

A node is given up where its agent has not started, knocking shows again and again that the node or
its service is not there, all others have reported, and a node that did start its agent answers the
same knock: else the knock proves nothing. A node that answers the knock is waited for until the
deadline, however slow it is. One whose kernel takes a connection and whose service says nothing is
waited for as long as one knock lasts, and longer where the other nodes are slow to answer, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ..text.plural import choose
from ..text.ranges import format_hosts
from .knock import KNOCK_S, SERVICE_S, Door, Knocker, Presence

_LATE_S = (
    0.7  # after the start of its command: then a node whose agent has not started is knocked at
)
_CONTROLS = 2  # nodes that are there, knocked at to see whether a knock can be answered at all
_MULTIPLE = 4.0  # a node may take N times as long to start its agent as the slowest of the others
_MANY_TIMES = 8.0  # as long as the slowest of the nodes that are there took to answer a knock
_ENOUGH_S: dict[Presence, float] = {
    "gone": 0.9 * KNOCK_S,
    "closed": KNOCK_S,
    "stuck": 0.95 * SERVICE_S,
}


class Standing(Struct):
    """How far one node is. Seconds count from the start of its command."""

    node: str
    age_s: float
    started_s: float | None = None  # when its agent said that it is there
    reported_s: float | None = None  # when its report was whole, or its command ended by itself


class Watch:
    """Knocks at the late and says who is lost."""

    def __init__(self, knocker: Knocker) -> None:
        self.knocker = knocker

    def lost(self, standings: Sequence[Standing]) -> dict[str, str]:
        """{node: why} of those that need not be waited for; `standings` has every node of the job."""
        late = [s for s in standings if is_late(s)]
        controls = [s.node for s in standings if s.started_s is not None][:_CONTROLS]
        if not late or not controls:
            return {}
        asked = dict.fromkeys([*controls, *(s.node for s in late)])
        for node in asked:
            if node not in controls or self.knocker.door(node).presence != "alive":
                self.knocker.ask(node)
        return decide(standings, {node: self.knocker.door(node) for node in asked})


def is_late(standing: Standing) -> bool:
    """Whether its agent should have started by now."""
    return standing.started_s is None and standing.reported_s is None and standing.age_s >= _LATE_S


def decide(standings: Sequence[Standing], doors: Mapping[str, Door]) -> dict[str, str]:
    """The lost nodes and why, by what knocking has shown; none as long as any other node may still
    report.
    """
    there = [s for s in standings if s.started_s is not None]
    answered = [d for s in there if (d := doors.get(s.node)) is not None and d.presence == "alive"]
    if not answered:
        return {}
    slowest = max(s.started_s or 0.0 for s in there)
    at_least = _MANY_TIMES * max(d.took_s for d in answered)
    found: dict[str, str] = {}
    for standing in standings:
        if standing.reported_s is not None:
            continue
        door = doors.get(standing.node, Door())
        overdue = is_late(standing) and standing.age_s >= _MULTIPLE * slowest
        if not overdue or not _shown_long_enough(door, at_least):
            return {}  # one that is still waited for: then all are
        found[standing.node] = f"{_words(door)}; {_others(standings)}"
    return found


def _shown_long_enough(door: Door, at_least: float) -> bool:
    enough = _ENOUGH_S.get(door.presence)
    if enough is None or door.address is None:
        return False
    if door.presence == "stuck":
        enough = KNOCK_S if door.address.doubted else max(enough, at_least)
    return door.until - door.since >= enough


def _words(door: Door) -> str:
    assert door.address is not None
    ports = [str(p) for p in door.address.ports]
    where = f"{choose(ports, 'port', 'ports')} {' and '.join(ports)}"
    for_s = f"for {door.until - door.since:.1f} s"
    service = door.address.service
    if door.presence == "gone":
        return f"it did not answer on {where} {for_s}"
    if door.presence == "closed":
        return f"its {service} is not running: port {ports[0]} refused connections {for_s}"
    return f"its {service} does not answer on port {ports[0]} {for_s}, but its kernel does"


def _others(standings: Sequence[Standing]) -> str:
    heard = [s for s in standings if s.reported_s is not None and s.started_s is not None]
    if not heard:
        return "no other node reported"
    slowest = max(s.reported_s or 0.0 for s in heard)
    return f"{format_hosts(s.node for s in heard)} reported within {slowest:.1f} s"
