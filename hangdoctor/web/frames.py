"""What the page gets each second: small frames that say what changed, so that 16,384 ranks cost some kilobytes.

A frame has one list of numbers for each column of ranks: ``[first, count, value, first, count, value, ...]``, runs of
neighbours that changed to the same value. Names (operations, phases, nodes) are sent once and meant by their number.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..storage.incidents import Incident
from ..watch.live_ranks import RankRow, Standing
from ..watch.rank_states import CODES
from .snapshot import Look

_MAX_NAMES = 5000  # a job that numbers its phases must not fill every browser
_MAX_STANDINGS = 40
_MAX_NAME = 120
COLUMNS = ("state", "iteration", "phase", "op", "seq", "since", "node", "lag")


class Status(Struct):
    """What stands above the grid."""

    sentence: str
    job: str
    jobs: dict[str, int]
    world_size: int
    counts: dict[str, int]
    iteration: tuple[int, int]
    pace_s: float
    idle_s: float
    stalled: bool
    warm: bool
    capturing: str
    capture_asked: int
    capture_answered: int
    agents: int
    nodes: int
    silent: list[str]
    messages: int
    bytes: int
    captures: int
    capture_s: float
    can_trace: bool
    trouble: str


class Frame(Struct):
    """`at` is the collector's clock in seconds, as `since` is in tenths of a second; 0 there means that the rank moves."""

    number: int
    at: float
    size: int
    status: Status
    standings: list[Standing]
    more: int  # standings that are left out
    columns: dict[str, list[int]]
    names: dict[str, tuple[int, list[str]]]  # table -> (number of the first that is new, names)
    incidents: list[Incident] | None = None
    concluded: int = 0


def status_of(look: Look, captures: tuple[int, float], can_trace: bool, trouble: str) -> Status:
    now, picture = look.now, look.picture
    return Status(
        picture.sentence, picture.job[:_MAX_NAME], {j[:_MAX_NAME]: n for j, n in list(now.jobs.items())[:20]}, picture.world_size,
        picture.counts, picture.iteration, round(look.pace_s, 3), round(picture.idle_s, 1), now.stalled, now.warm, now.capturing,
        now.capture_asked, now.capture_answered, now.agents, len(now.nodes),
        [n.name for n in now.nodes if n.silent_s][:20], now.counters.messages, now.counters.bytes, captures[0],
        round(captures[1], 2), can_trace, trouble,
    )  # fmt: skip


class Names:
    """Texts by number; the first is the empty one. What comes when the table is full is number 1."""

    def __init__(self) -> None:
        self.texts = ["", "(other)"]
        self._numbers = {"": 0}

    def number(self, text: str) -> int:
        known = self._numbers.get(text)
        if known is None:
            known = len(self.texts) if len(self.texts) < _MAX_NAMES else 1
            if known > 1:
                self.texts.append(text[:_MAX_NAME])
                self._numbers[text] = known
        return known


class Frames:
    """Keeps what the readers have been told."""

    def __init__(self) -> None:
        self.tables = {name: Names() for name in ("op", "phase", "node")}
        self.columns: dict[str, list[int]] = {name: [] for name in COLUMNS}
        self._told = dict.fromkeys(self.tables, 0)
        self.last: Frame | None = None

    def step(
        self, look: Look, status: Status, incidents: list[Incident] | None, concluded: int
    ) -> Frame:
        """The changes since the step before."""
        fresh = self._columns(look)
        size = len(look.rows)
        columns = {}
        for name, values in fresh.items():
            old = self.columns[name]
            found = runs(
                [*old[:size], *[-2] * (size - len(old))], values
            )  # a job that begins anew may be smaller
            if found:
                columns[name] = found
        self.columns = fresh
        names = {}
        for name, table in self.tables.items():
            if self._told[name] < len(table.texts):
                names[name] = (self._told[name], table.texts[self._told[name] :])
                self._told[name] = len(table.texts)
        standings = look.picture.standings
        self.last = Frame(
            look.number, round(look.now.mono, 2), size, status, [_clip(s) for s in standings[:_MAX_STANDINGS]],
            max(0, len(standings) - _MAX_STANDINGS), columns, names, incidents, concluded,
        )  # fmt: skip
        return self.last

    def full(self, incidents: list[Incident]) -> Frame:
        """Everything, for a reader that comes in after the last step."""
        assert self.last is not None
        blank = [-2] * self.last.size
        return Frame(
            self.last.number, self.last.at, self.last.size, self.last.status, self.last.standings, self.last.more,
            {name: runs(blank, values) for name, values in self.columns.items()},
            {name: (0, table.texts) for name, table in self.tables.items()}, incidents, self.last.concluded,
        )  # fmt: skip

    def _columns(self, look: Look) -> dict[str, list[int]]:
        rows, at = look.rows, look.now.mono
        op, phase, node = (self.tables[n].number for n in ("op", "phase", "node"))
        moves = ("moving", "unseen", "finished")
        return {
            "state": [CODES[r.state] for r in rows],
            "iteration": [r.iteration for r in rows],
            "phase": [phase(r.phase) for r in rows],
            "op": [op(r.op) for r in rows],
            "seq": [
                0 if r.state in moves else r.seq for r in rows
            ],  # of a moving rank it would change with every frame
            "since": [0 if r.state in moves else _tenths(at, r) for r in rows],
            "node": [node(r.node) for r in rows],
            "lag": [round(r.lag_s * 100) * 10 for r in rows],
        }


def _tenths(at: float, row: RankRow) -> int:
    return max(1, round((at - row.idle_s) * 2) * 5)


def _clip(one: Standing) -> Standing:
    """A sparse set of thousands of ranks is long as ranges, and no one reads it."""
    if len(one.ranks) > 400:
        one.ranks = one.ranks[: one.ranks.rfind(",", 0, 400)] + ",..."
    one.op, one.phase = one.op[:_MAX_NAME], one.phase[:_MAX_NAME]
    return one


def runs(old: Sequence[int], new: Sequence[int]) -> list[int]:
    """``[1, 1, 1, 1], [1, 2, 2, 3]`` -> ``[1, 2, 2, 3, 1, 3]``: at 1, two of value 2; at 3, one of value 3."""
    if old == new:
        return []
    out: list[int] = []
    end = -1
    for i, (was, value) in enumerate(zip(old, new, strict=True)):
        if was != value:
            if i == end and out[-1] == value:
                out[-2] += 1
            else:
                out += (i, 1, value)
            end = i + 1
    return out
