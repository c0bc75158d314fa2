"""What the collector does with a capture: diagnose, save, act; and what it must know after a restart."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ..collector.capture_reason import Trigger
from ..collector.instructions import Conclude, Position
from ..collector.training_events import Said
from ..diagnosis import diagnose, load_all
from ..errors import BundleError
from ..model.capture import JobCapture
from ..model.diagnosis import Diagnosis
from ..report import telemetry
from ..report.terminal_report import plain
from ..storage import bundle
from ..storage.event_rows import EventRow
from ..storage.incidents import Incidents
from ..text.plain import visible
from ..watch.stall_watch import Learned
from . import actions
from .verdict import Subject, Verdict

_LOG = logging.getLogger("hangdoctor.collector")
# Keys of the time of day of the last action, by what it was for.
_ACTED: dict[Subject, str] = {"verdict": "acted", "event": "acted for an event"}
_WAITING = 4  # incidents that the disk did not take; a fifth pushes the oldest out


class IncidentMemory:
    """Positions and rhythm in the incidents' index."""

    def __init__(self, incidents: Incidents) -> None:
        self.incidents = incidents

    def load(self) -> tuple[dict[str, Position], Learned]:
        """What an earlier collector has kept; empty where there was none."""
        positions, learned = self.incidents.get("positions"), self.incidents.get("learned")
        return (
            msgspec.json.decode(positions, type=dict[str, Position]) if positions else {},
            msgspec.json.decode(learned, type=Learned) if learned else Learned(),
        )

    def writing(
        self, positions: dict[str, Position], learned: Learned, events: Sequence[Said]
    ) -> Callable[[], list[Said]]:
        """What writes them as they are now, and returns the events that are new; it raises
        BundleError where the disk does not take them.
        """
        values = {
            "positions": msgspec.json.encode(positions),
            "learned": msgspec.json.encode(learned),
        }
        rows = [event_row(one) for one in events]

        def write() -> list[Said]:
            fresh = {row.key for row in self.incidents.put(values, rows)}
            return [one for one, row in zip(events, rows, strict=True) if row.key in fresh]

        return write


def event_row(one: Said) -> EventRow:
    """An event as the index of incidents has it."""
    event = one.event
    return EventRow(
        rank=event.rank,
        made=event.made,
        serial=event.serial,
        job=one.job,
        node=one.node,
        at=event.at,
        kind=event.kind,
        iteration=event.iteration,
        text=event.text,
    )


class _Kept(msgspec.Struct):
    """An incident that waits for space on the disk."""

    one: Conclude
    diagnosis: Diagnosis
    report: str
    done: list[str] = []  # what the actions said


class Concluder:
    """Diagnoses a capture, saves the incident, acts. Runs in threads of the collector."""

    def __init__(self, incidents: Incidents, actor: actions.Actor) -> None:
        load_all()
        self.incidents = incidents
        self.actor = actor
        self.after: Callable[[], object] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        # Seconds of a capture and of its diagnosis, for who counts them.
        self.captured: Callable[[float, float], None] = lambda capture_s, diagnose_s: None
        # Puts into a capture what is known of nodes that did not answer.
        self.enter: Callable[[JobCapture], None] = lambda capture: None
        self._waiting: list[_Kept] = []
        self._lock = threading.Lock()
        actor.acting = self._note_act
        for subject, key in _ACTED.items():
            actor.acted_at[subject] = self._acted_before(key)

    def _acted_before(self, key: str) -> float:
        """The time of the last action, also by an earlier collector: cool-down and stall outlive it."""
        try:
            told = self.incidents.get(key)
            return time.monotonic() - max(0.0, time.time() - float(told)) if told else float("-inf")
        except (BundleError, ValueError):
            return float("-inf")

    def _note_act(self, subject: Subject) -> None:
        """Before any action: it may end the collector's own job."""
        try:
            self.incidents.put({_ACTED[subject]: b"%.3f" % time.time()})
        except BundleError as error:
            _LOG.error("%s", error)

    def __call__(self, one: Conclude) -> str:
        """Diagnose, keep and act; returns the status of the diagnosis, "" where nothing was kept."""
        begin = time.monotonic()
        try:
            return self._deal_with(one, begin)
        finally:
            self.captured(one.capture.took_s, time.monotonic() - begin)

    def _deal_with(self, one: Conclude, begin: float) -> str:
        self.enter(one.capture)
        diagnosis = diagnose(one.capture, lenient=True)
        if diagnosis.status == "healthy" and one.reason.trigger is Trigger.STALL:
            return "healthy"
        if one.early and diagnosis.status != "hang":
            return diagnosis.status
        if one.reason.trigger is Trigger.ENDED and diagnosis.status not in ("failed", "hang"):
            _LOG.info("how the job ended is not known: no incident. %s", diagnosis.summary)
            return ""
        _LOG.info("%s: %s", diagnosis.status.upper(), diagnosis.summary)
        kept = _Kept(one, diagnosis, plain(diagnosis))
        id = self._keep(kept)
        _LOG.info(
            "capture %.1f s, diagnosis and saving %.1f s",
            one.capture.took_s,
            time.monotonic() - begin,
        )
        place = self.incidents.folder / id if id else Path()
        acting = time.time()
        kept.done = self.actor.act(Verdict.of(id, diagnosis, place), time.monotonic())
        for line in kept.done:
            _LOG.info("%s", line)
        self._note(id, kept)
        self._tell_otel(id, kept, begin, acting)
        if self.loop is not None and self.after is not None:
            self.loop.call_soon_threadsafe(self.after)
        return diagnosis.status

    def _tell_otel(self, id: str, kept: _Kept, begin: float, acting: float) -> None:
        """Send the incident to OpenTelemetry, where that is configured. Diagnosis began at `begin`
        (a clock that never goes back), the actions at `acting` (time of day).
        """
        to = self.actor.config.otel
        if to is None or not id:
            return
        ahead = time.time() - time.monotonic()  # of the clock that never goes back
        capture, reason = kept.one.capture, kept.one.reason
        began = capture.taken - capture.took_s
        spans = [telemetry.Span("capture", began, capture.taken)]
        if reason.since:
            since = min(reason.since + ahead, began)
            spans.insert(0, telemetry.Span("stall", since, began, [reason.words]))
        spans.append(telemetry.Span("diagnosis", begin + ahead, acting))
        if kept.done:
            spans.append(telemetry.Span("actions", acting, time.time(), kept.done))
        bundle_path = str(self.incidents.folder / id)
        told = telemetry.Told(
            id, bundle_path, at=capture.taken, diagnosis=kept.diagnosis, spans=spans
        )
        if self.actor.dry_run:
            _LOG.info("otel: would send to %s", to.endpoint)
            return
        _LOG.info("otel: %s", telemetry.send(told, to))

    def _keep(self, kept: _Kept) -> str:
        """Its id; "" if it cannot be saved: the verdict is still logged and passed to the actions."""
        try:
            row = self.incidents.save(
                kept.one.capture, kept.diagnosis, kept.report, str(kept.one.reason)
            )
        except BundleError as error:
            _LOG.error("%s %s Will try again.", error, error.help)
            with self._lock:
                self._waiting = [*self._waiting, kept][-_WAITING:]
            return ""
        _LOG.info("saved in %s", self.incidents.folder / row.id)
        return row.id

    def _note(self, id: str, kept: _Kept) -> None:
        if not id or not kept.done:
            return
        try:
            self.incidents.note_actions(id, "\n".join(kept.done))
        except BundleError as error:
            _LOG.error("%s", error)

    def said(self, events: Sequence[Said]) -> None:
        """Log what the training has said, and act for it."""
        for one in events:
            row, verdict = event_row(one), Verdict.of_event(one)
            _LOG.info("EVENT %s: %s", visible(row.kind), visible(verdict.summary))
            done = self.actor.act(verdict, time.monotonic(), age_s=one.event.age_s)
            for line in done:
                _LOG.info("%s", line)
            if done:
                self._note_event(row, done)
        self._tell_otel_of([event_row(one) for one in events])

    def _tell_otel_of(self, rows: Sequence[EventRow]) -> None:
        to = self.actor.config.otel
        if to is None or not rows:
            return
        if self.actor.dry_run:
            _LOG.info("otel: would send events to %s", to.endpoint)
            return
        _LOG.info("otel: events %s", telemetry.send_events(rows, to))

    def _note_event(self, row: EventRow, done: Sequence[str]) -> None:
        try:
            self.incidents.note_event_actions(row, "\n".join(done))
        except BundleError as error:
            _LOG.error("%s", error)

    def again(self, last: bool = False) -> None:
        """Save what could not be saved before; at the last try, in the folder for temporary files if it still fails."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for kept in waiting:
            id = self._keep(kept)
            self._note(id, kept)
            if not id and last:
                self._keep_elsewhere(kept)
        if last:
            self._waiting = []

    def _keep_elsewhere(self, kept: _Kept) -> None:
        capture = kept.one.capture
        place = Path(tempfile.gettempdir()) / bundle.default_path(capture.job, capture.taken)
        command = bundle.command_line()
        try:
            path = bundle.save(place, capture, kept.diagnosis, kept.report, command=command)
        except BundleError as error:
            _LOG.error("an incident could not be saved and is lost: %s", error)
            return
        _LOG.warning(
            "the disk of %s is still full: the incident is in %s", self.incidents.folder, path
        )
