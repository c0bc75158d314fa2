"""One look at the job, at most one a second however many ask, and what the page may set going."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from math import prod
from pathlib import Path

from msgspec import Struct

from ..collector.view import Now
from ..errors import HangdoctorError
from ..storage.event_rows import EventRow
from ..storage.incidents import Incident, Incidents
from ..storage.unrecorded_waits import from_text
from ..watch import unrecorded
from ..watch.arrival_lag import Pace, per_iteration
from ..watch.live_ranks import Picture, RankRow, look
from .collector_mirror import Mirror
from .standstill import Standstill, standstill

_FRESH_S = 0.5
_INCIDENTS_S = 20.0  # another process may prune them
_MAX_INCIDENTS = 200
_MAX_EVENTS = 50


class Look(Struct, frozen=True):
    """All ranks at one moment, the collector then, and what it amounts to."""

    number: int
    rows: list[RankRow]
    now: Now
    picture: Picture
    pace_s: float  # seconds an iteration, 0 where it is not known


Report = Callable[[Path], tuple[bytes, str]]  # bundle -> (document, media type)
Switch = Callable[[bool], str]  # trace on or off -> what happens now


class Doors(Struct, frozen=True):
    """What the web server may ask of the rest: it runs in another process than the collector."""

    ask: Callable[[str], None]  # a capture, with the reason
    report: Report
    trace: Switch | None = None


class Board:
    """Used by the page's loop alone."""

    def __init__(self, view: Mirror, incidents: Incidents, doors: Doors) -> None:
        self.view = view
        self.incidents = incidents
        self.doors = doors
        self.kinds: Counter[tuple[str, str]] = Counter()  # (kind, status) -> incidents so far
        self.trouble = ""  # why the incidents cannot be read
        self._look: Look | None = None
        self._looked_at = 0.0
        self._number = 0
        self._rows: list[Incident] = []
        self._known: set[str] = set()
        self._read_at = -1e9
        self._concluded = -1
        self._pace = Pace()
        self.event_kinds: dict[str, int] = {}  # kind -> events of the training that are kept
        self._events: list[EventRow] = []
        self._events_kept = -1
        self._events_at = -1e9

    def look(self, fresh_s: float = _FRESH_S) -> Look:
        """All ranks now; the look of before while that is younger than `fresh_s` seconds."""
        mono = time.monotonic()
        if self._look is None or mono - self._looked_at >= fresh_s:
            rows, now = self.view.rows()
            self._looked_at = mono
            self._number += 1
            job = max(now.jobs, key=lambda j: now.jobs[j], default="")
            size = max(now.world_size, sum(r.state != "unseen" for r in rows))
            picture = look(rows, job, size)
            if picture.counts.get("outside") and self._mark(rows, picture, now.wall):
                picture = look(rows, job, size)
            pace = self._pace.step(mono, picture.iteration[0])
            per_iteration(rows, pace)
            self._look = Look(number=self._number, rows=rows, now=now, picture=picture, pace_s=pace)
        return self._look

    def _mark(self, rows: list[RankRow], picture: Picture, wall: float) -> bool:
        """Add what the newest capture of this hang has seen in stacks alone; whether there was
        any.
        """
        incidents = self.rows()
        of_now = standstill(rows, picture, wall, incidents).incident
        newest = next((i for i in incidents if i.id == of_now and i.unrecorded), None)
        if newest is None:
            return False
        return unrecorded.mark(rows, from_text(newest.unrecorded), wall - newest.at)

    def standstill(self, look: Look) -> Standstill:
        """Since when the job of that look waits, and the incident about it."""
        return standstill(look.rows, look.picture, look.now.wall, self.rows())

    def layout(self, look: Look) -> list[int]:
        """Sizes of dp, pp and tp as the newest incident has them; empty where they do not fit the
        job.
        """
        told = next((i.layout for i in self.rows() if i.layout), "")
        sizes = [int(size) for size in told.split(",") if size.isdecimal()]
        fits = len(sizes) == 3 and prod(sizes) == len(look.rows)
        return sizes if fits else []

    def events(self) -> list[EventRow]:
        """The newest events of the training, newest first."""
        kept = self.view.now.counters.events
        if kept != self._events_kept or time.monotonic() - self._events_at > _INCIDENTS_S:
            self._events_kept, self._events_at = kept, time.monotonic()
            try:
                self._events = self.incidents.events(_MAX_EVENTS)[::-1]
                self.event_kinds = self.incidents.event_counts()
            except HangdoctorError as error:
                self.trouble = str(error)
        return self._events

    def rows(self) -> list[Incident]:
        """The newest incidents, newest first."""
        if (
            self._concluded != self.view.concluded
            or time.monotonic() - self._read_at > _INCIDENTS_S
        ):
            self._concluded, self._read_at = self.view.concluded, time.monotonic()
            try:
                found = self.incidents.rows()
            except HangdoctorError as error:
                self.trouble = str(error)
                return self._rows
            self.trouble = ""
            for row in found:
                if row.state == "saved" and row.id not in self._known:
                    self._known.add(row.id)
                    self.kinds[row.kind or "none", row.status] += 1
            self._rows = [r for r in reversed(found) if r.state != "open"][:_MAX_INCIDENTS]
        return self._rows
