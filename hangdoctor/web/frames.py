"""What the page gets each second: small frames that say what changed, so that 16,384 ranks cost
some kilobytes.

A frame has one list of numbers for each column of ranks: ``[first, count, value, first, count,
value, ...]``, runs of neighbours that changed to the same value. Names (operations, phases, nodes)
are sent once and meant by their number.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from ..storage.event_rows import EventRow
from ..storage.incidents import Incident
from ..text.job_names import short_job
from ..watch.live_ranks import RankRow, Standing
from ..watch.rank_states import CODES, UNTIMED
from .snapshot import Board, Look
from .standstill import Ended

_MAX_NAMES = {
    "op": 5000,
    "phase": 5000,
    "node": 20_000,
}  # a job that numbers its phases must not fill every browser
_MAX_STANDINGS = 40
_MAX_NAME = 120
_MAX_LISTED = 20  # jobs and silent nodes
_BLANK = -2  # no column holds it: what a rank without a value had before
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
    folder: str = ""  # where the incidents are, for who wants them without this page
    missing: list[str] = []  # nodes whose agents have never connected
    hang_since: float = 0.0  # time of day from which ranks have been waiting, 0 where none waits
    incident: str = ""  # id of the newest incident of this hang
    layout: list[int] = []  # sizes of dp, pp, tp; empty where they are not known
    ended: Ended | None = None
    job_names: list[str] = []  # of `jobs`, as people say them
    time: float = 0.0  # time of day at the collector, for who has a clock that is wrong


class Frame(Struct):
    """`at` is the collector's clock in seconds, as `since` is in tenths of a second; 0 there means
    that the rank moves.
    """

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
    events: list[EventRow] | None = None  # of the training, newest first


def status_of(board: Board, look: Look) -> Status:
    """What is above the grid."""
    now, picture, captures = look.now, look.picture, board.view.captures
    stands = board.standstill(look)
    jobs = list(now.jobs.items())[:_MAX_LISTED]
    silent = [n.name for n in now.nodes if n.silent_s]
    return Status(
        sentence=picture.sentence,
        job=picture.job[:_MAX_NAME],
        jobs={job[:_MAX_NAME]: nodes for job, nodes in jobs},
        world_size=picture.world_size,
        counts=picture.counts,
        iteration=picture.iteration,
        pace_s=round(look.pace_s, 3),
        idle_s=round(picture.idle_s, 1),
        stalled=now.stalled,
        warm=now.warm,
        capturing=now.capturing,
        capture_asked=now.capture_asked,
        capture_answered=now.capture_answered,
        agents=now.agents,
        nodes=len(now.nodes),
        silent=silent[:_MAX_LISTED],
        messages=now.counters.messages,
        bytes=now.counters.bytes,
        captures=captures.count,
        capture_s=round(captures.last_s, 2),
        can_trace=board.doors.trace is not None,
        trouble=board.trouble,
        folder=str(board.incidents.folder),
        missing=now.missing[:_MAX_LISTED],
        hang_since=round(stands.since, 1),
        incident=stands.incident,
        layout=board.layout(look),
        ended=stands.ended,
        job_names=[short_job(job)[:_MAX_NAME] for job, _ in jobs],
        time=round(now.wall, 1),
    )


class Names:
    """Texts by number; the first is the empty one. What comes when the table is full is number 1."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.texts = ["", "(other)"]
        self._numbers = {"": 0}

    def number(self, text: str) -> int:
        """The number of a text, a new one where there is room."""
        known = self._numbers.get(text)
        if known is None:
            known = len(self.texts) if len(self.texts) < self.most else 1
            if known > 1:
                self.texts.append(text[:_MAX_NAME])
                self._numbers[text] = known
        return known

    def since(self, first: int) -> list[str]:
        """The texts from that number on."""
        return self.texts[first:]


class Frames:
    """Keeps what the readers have been told."""

    def __init__(self) -> None:
        self.tables = {name: Names(most) for name, most in _MAX_NAMES.items()}
        self.columns: dict[str, list[int]] = {name: [] for name in COLUMNS}
        self._told = dict.fromkeys(self.tables, 0)
        self.last: Frame | None = None

    def step(
        self,
        look: Look,
        status: Status,
        incidents: list[Incident] | None,
        concluded: int,
        *,
        events: list[EventRow] | None = None,
    ) -> Frame:
        """The changes since the step before."""
        fresh = self._columns(look)
        changed = {name: runs(self._before(name, len(look.rows)), fresh[name]) for name in fresh}
        self.columns = fresh
        standings = look.picture.standings
        self.last = Frame(
            number=look.number,
            at=round(look.now.mono, 2),
            size=len(look.rows),
            status=status,
            standings=[_clip(s) for s in standings[:_MAX_STANDINGS]],
            more=max(0, len(standings) - _MAX_STANDINGS),
            columns={name: found for name, found in changed.items() if found},
            names=self._new_names(),
            incidents=incidents,
            concluded=concluded,
            events=events,
        )
        return self.last

    def _before(self, name: str, size: int) -> list[int]:
        """A column as it was, for so many ranks: a job that begins anew may have fewer, or more."""
        old = self.columns[name][:size]
        return [*old, *[_BLANK] * (size - len(old))]

    def _new_names(self) -> dict[str, tuple[int, list[str]]]:
        found = {}
        for name, table in self.tables.items():
            first = self._told[name]
            if first < len(table.texts):
                found[name] = (first, table.since(first))
                self._told[name] = len(table.texts)
        return found

    def full(self, incidents: list[Incident], events: list[EventRow]) -> Frame:
        """Everything, for a reader that comes in after the last step."""
        assert self.last is not None
        blank = [_BLANK] * self.last.size
        return structs.replace(
            self.last,
            columns={name: runs(blank, values) for name, values in self.columns.items()},
            names={name: (0, table.texts) for name, table in self.tables.items()},
            incidents=incidents,
            events=events,
        )

    def _columns(self, look: Look) -> dict[str, list[int]]:
        rows, at = look.rows, look.now.mono
        op, phase, node = (self.tables[n].number for n in ("op", "phase", "node"))
        return {
            "state": [CODES[r.state] for r in rows],
            "iteration": [r.iteration for r in rows],
            "phase": [phase(r.phase) for r in rows],
            "op": [op(r.op) for r in rows],
            # Of a moving rank both would change with every frame.
            "seq": [0 if r.state in UNTIMED else r.seq for r in rows],
            "since": [0 if r.state in UNTIMED else _tenths(at, r) for r in rows],
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
    """``[1, 1, 1, 1], [1, 2, 2, 3]`` -> ``[1, 2, 2, 3, 1, 3]``: at 1, two of value 2; at 3, one of
    value 3.
    """
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
