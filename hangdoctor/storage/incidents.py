"""Incidents: a folder with one bundle each and an index in SQLite, whole again after a crash at any
point.

    FOLDER/incidents/index.sqlite
    FOLDER/incidents/<id>/          a bundle (`hangdoctor.storage.bundle`)

A row is written before its bundle and completed after it; bundles appear by a rename. On opening, a
row without a bundle is marked `lost` and a bundle without a row is taken in, so that folder and
index agree whatever was interrupted. The same file keeps what the collector must know after a
restart.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from ..errors import BadInput, BundleError
from ..files import read_regular
from ..model.capture import JobCapture
from ..model.diagnosis import Cause, Diagnosis
from ..text.job_names import short_job
from ..text.plain import safe_name
from ..text.ranges import format_ranks
from . import bundle, event_rows, unrecorded_waits
from .event_rows import EventRow

_ID = re.compile(r"^[0-9]{8}-[0-9]{6}-[A-Za-z0-9._-]{1,80}$")
_QUERY_S = 20.0
_MAKING_S = 600.0  # no bundle takes longer to be made: what is older was given up
_MAX_DIAGNOSIS = 512 << 20
_SCHEMA = """
CREATE TABLE IF NOT EXISTS incidents (
    id TEXT PRIMARY KEY, job TEXT NOT NULL, at REAL NOT NULL, reason TEXT NOT NULL, state TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT '', kind TEXT NOT NULL DEFAULT '', ranks TEXT NOT NULL DEFAULT '',
    summary TEXT NOT NULL DEFAULT '', actions TEXT NOT NULL DEFAULT '', advice TEXT NOT NULL DEFAULT '',
    hang TEXT NOT NULL DEFAULT '', layout TEXT NOT NULL DEFAULT '', unrecorded TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS memory (key TEXT PRIMARY KEY, value BLOB NOT NULL);
"""


class Incident(Struct):
    """One row. `state`: open (being made), saved, lost (its bundle is not there)."""

    id: str
    job: str
    at: float
    reason: str
    state: str
    status: str = ""
    kind: str = ""
    ranks: str = ""
    summary: str = ""
    actions: str = ""
    advice: str = ""
    hang: str = ""  # the same for all captures of one hang; "" where the verdict names no rank
    layout: str = ""  # "dp,pp,tp" where it is known
    unrecorded: str = ""  # ranks in operations that no black box records (`unrecorded_waits`)


_COLUMNS = ", ".join(Incident.__struct_fields__)


class Incidents:
    """The incidents of one job's folder."""

    def __init__(self, folder: Path, create: bool = True) -> None:
        """Raises BundleError: the folder or its index cannot be used; BadInput: there is none and
        `create` is off.
        """
        self.folder = folder / "incidents"
        if not create and not (self.folder / "index.sqlite").is_file():
            raise BadInput(
                f"{folder} has no incidents",
                "Pass the folder that the collector was given: --folder DIR",
            )
        with self._trouble():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._open() as db:
                db.executescript(_SCHEMA + event_rows.SCHEMA)
                _add_columns(db)
            self._mend()

    @contextlib.contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeDecodeError, msgspec.ValidationError) as error:
            raise BundleError(
                f"the index of incidents in {self.folder} cannot be used: {error}",
                "Is the disk full, or the folder read-only?",
            ) from error

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection for one transaction: the rollback journal works on network file systems,
        where WAL does not.
        """
        db = sqlite3.connect(self.folder / "index.sqlite", timeout=5)
        end = time.monotonic() + _QUERY_S
        try:
            # A view in someone's file can go on for ever.
            db.set_progress_handler(lambda: time.monotonic() > end, 100_000)
            with db:
                yield db
        finally:
            db.close()

    def _mend(self) -> None:
        # The rows first, since a bundle is there before its row says so: the collector may be
        # writing meanwhile.
        rows = {i.id: i for i in self.rows()}
        there = self._bundles()
        lost = [i for i, row in rows.items() if i not in there and _should_be_there(row)]
        found = [i for i in there if i not in rows or rows[i].state != "saved"]
        if lost or found:  # a reader must not block the collector that writes
            with self._open() as db:
                db.execute("BEGIN IMMEDIATE")
                db.executemany(
                    "UPDATE incidents SET state='lost' WHERE id=? AND state=?",
                    [(i, rows[i].state) for i in lost],
                )
                for id in found:
                    self._adopt(db, id, rows.get(id))
        for stale in self.folder.glob(".hangdoctor-*"):
            if stale.is_dir() and time.time() - stale.stat().st_mtime > _MAKING_S:
                shutil.rmtree(stale, ignore_errors=True)

    def _bundles(self) -> set[str]:
        """Names of the bundles in the folder."""
        named = [p for p in self.folder.iterdir() if _ID.match(p.name)]
        return {p.name for p in named if p.is_dir() and bundle.is_bundle(p)}

    def _adopt(self, db: sqlite3.Connection, id: str, row: Incident | None) -> None:
        try:
            told = msgspec.json.decode(
                read_regular(self.folder / id / "diagnosis.json", _MAX_DIAGNOSIS), type=Diagnosis
            )
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadInput):
            return
        if db.execute("SELECT 1 FROM incidents WHERE id=? AND state='saved'", (id,)).fetchone():
            return  # it has been completed meanwhile
        at = row.at if row else (self.folder / id).stat().st_mtime
        self._write(db, _row(id, told, at, row.reason if row else "found beside the index"))

    def _write(self, db: sqlite3.Connection, row: Incident) -> None:
        marks = ", ".join("?" * len(Incident.__struct_fields__))
        db.execute(
            f"INSERT OR REPLACE INTO incidents ({_COLUMNS}) VALUES ({marks})",
            msgspec.structs.astuple(row),
        )

    # ----------------------------------------------------------------- incidents

    def save(self, capture: JobCapture, diagnosis: Diagnosis, report: str, reason: str) -> Incident:
        """Keep one incident under a new id.

        Raises:
            BundleError: it cannot be written; the row then says `open`, later `lost`.
        """
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(capture.taken))
        with self._trouble(), self._open() as db:
            known = {row[0] for row in db.execute("SELECT id FROM incidents")}
            id = self._free_id(f"{stamp}-{safe_name(short_job(capture.job))}"[:90], known)
            opened = Incident(id, capture.job, capture.taken, reason, state="open")
            opened.summary = diagnosis.summary
            self._write(db, opened)
        command = bundle.command_line()
        bundle.save(self.folder / id, capture, diagnosis, report, command=command)
        row = _row(id, diagnosis, capture.taken, reason)
        with self._trouble(), self._open() as db:
            self._write(db, row)
        return row

    def _free_id(self, base: str, known: set[str]) -> str:
        """`base`, or `base.2`, `base.3` ... where an incident has that name."""
        id, number = base, 1
        while id in known or (self.folder / id).exists():
            number += 1
            id = f"{base}.{number}"
        return id

    def rows(self) -> list[Incident]:
        """All rows, oldest first."""
        with self._trouble(), self._open() as db:
            rows = db.execute(f"SELECT {_COLUMNS} FROM incidents ORDER BY at, id").fetchall()
            names = Incident.__struct_fields__
            return [
                msgspec.convert(dict(zip(names, row, strict=True)), type=Incident) for row in rows
            ]

    def find(self, id: str) -> Incident:
        """The incident of that id, or of an unambiguous part of it; "last" is the newest.

        Raises:
            BadInput: none, or several.
        """
        rows = self.rows()
        if id == "last":
            found = rows[-1:]
        else:
            found = [r for r in rows if r.id == id] or [r for r in rows if id in r.id]
        if len(found) != 1:
            what = f"{len(found)} incidents match" if found else "no incident matches"
            raise BadInput(f"{what} '{id}'", "See: hangdoctor incidents list")
        return found[0]

    def note_actions(self, id: str, text: str) -> None:
        """Keep what the actions said, one line each.

        Raises:
            BundleError: the disk does not take it.
        """
        with self._trouble(), self._open() as db:
            db.execute("UPDATE incidents SET actions=? WHERE id=?", (text, id))

    def prune(self, keep: int, older_than_s: float = 0.0) -> list[str]:
        """Remove all but the newest `keep`, of those only what is older than `older_than_s`;
        returns the ids removed.
        """
        rows = self.rows()
        old = rows[:-keep] if keep else rows
        limit = time.time() - older_than_s
        gone = [r.id for r in old if r.at < limit or not older_than_s]
        for id in gone:
            # The row first: a folder without a row would come back at the next opening, so it is
            # moved out of sight.
            path = self.folder / id
            if path.is_dir() and _ID.match(id):
                hidden = self.folder / f".hangdoctor-pruned-{id}"
                with self._trouble():
                    path.rename(hidden)
                shutil.rmtree(hidden, ignore_errors=True)
            with self._trouble(), self._open() as db:
                db.execute("DELETE FROM incidents WHERE id=?", (id,))
        return gone

    # ----------------------------------------------------------------- events of the training

    def events(self, most: int = 1000) -> list[EventRow]:
        """The newest, the oldest of them first."""
        with self._trouble(), self._open() as db:
            return event_rows.newest(db, most)

    def event_counts(self) -> dict[str, int]:
        """How many of each kind there were."""
        with self._trouble(), self._open() as db:
            return event_rows.counts(db)

    def note_event_actions(self, row: EventRow, text: str) -> None:
        """Keep what the actions for an event said, one line each.

        Raises:
            BundleError: the disk does not take it.
        """
        with self._trouble(), self._open() as db:
            event_rows.note_actions(db, row, text)

    # ----------------------------------------------------------------- memory

    def put(self, values: dict[str, bytes], events: Sequence[EventRow] = ()) -> list[EventRow]:
        """Keep values by key, and events of the training, all or none; returns the events that
        were not there before.

        Raises:
            BundleError: the disk does not take them.
        """
        with self._trouble(), self._open() as db:
            db.executemany(
                "INSERT OR REPLACE INTO memory (key, value) VALUES (?, ?)", list(values.items())
            )
            return event_rows.add(db, events)

    def get(self, key: str) -> bytes | None:
        """The value that was put last under this key, None without one."""
        with self._trouble(), self._open() as db:
            row = db.execute("SELECT value FROM memory WHERE key=?", (key,)).fetchone()
        return bytes(row[0]) if row else None


def _should_be_there(row: Incident) -> bool:
    """Whether the bundle of this row is finished, or cannot be under way any more."""
    given_up = row.state == "open" and time.time() - row.at > _MAKING_S
    return row.state == "saved" or given_up


def _add_columns(db: sqlite3.Connection) -> None:
    """An index that an earlier version made lacks the later columns."""
    there = {row[1] for row in db.execute("PRAGMA table_info(incidents)")}
    for name in Incident.__struct_fields__:
        if name not in there:
            db.execute(f"ALTER TABLE incidents ADD COLUMN {name} TEXT NOT NULL DEFAULT ''")


def _row(id: str, diagnosis: Diagnosis, at: float, reason: str) -> Incident:
    row = Incident(id, diagnosis.job.id, at, reason, state="saved")
    row.status, row.summary = diagnosis.status, diagnosis.summary
    row.unrecorded = unrecorded_waits.as_text(diagnosis.ranks)
    if diagnosis.causes:
        first = diagnosis.causes[0]
        row.kind, row.ranks = first.kind, format_ranks(first.ranks)
        row.advice, row.hang = first.advice, hang_of(first, row.ranks)
    if diagnosis.job.layout is not None:
        sizes = diagnosis.job.layout
        row.layout = f"{sizes.dp},{sizes.pp},{sizes.tp}"
    return row


def hang_of(cause: Cause, ranks: str) -> str:
    """What stays the same from one capture of a hang to the next.

    A later capture may name another kind; the operation and its number say that it is the same
    hang.
    """
    where = cause.where
    if not where.seq:
        return f"{ranks} {cause.kind} {where.iteration}"
    return f"{ranks} {where.group} {where.op} {where.seq}"
