"""The events of the training in the index of incidents: each once, by rank, process and number."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from msgspec import Struct, structs

_MOST = 10_000  # the oldest go beyond that
SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    rank INTEGER NOT NULL, made INTEGER NOT NULL, serial INTEGER NOT NULL, job TEXT NOT NULL,
    node TEXT NOT NULL, at REAL NOT NULL, kind TEXT NOT NULL, iteration INTEGER NOT NULL,
    text TEXT NOT NULL, actions TEXT NOT NULL DEFAULT '', PRIMARY KEY (rank, made, serial));
"""


class EventRow(Struct):
    """What the training said once; `made` (ns) names the process of the rank, `serial` counts its
    events.
    """

    rank: int
    made: int
    serial: int
    job: str
    node: str
    at: float  # seconds since the epoch, by the rank's clock
    kind: str
    iteration: int  # -1 where it is not known
    text: str
    actions: str = ""  # what they said, a line each

    @property
    def key(self) -> tuple[int, int, int]:
        """What it is found again by."""
        return self.rank, self.made, self.serial


_COLUMNS = ", ".join(EventRow.__struct_fields__)
_MARKS = ", ".join("?" * len(EventRow.__struct_fields__))


def add(db: sqlite3.Connection, rows: Iterable[EventRow]) -> list[EventRow]:
    """Keep those that are not there yet, and return them."""
    fresh = []
    for row in rows:
        done = db.execute(
            f"INSERT OR IGNORE INTO events ({_COLUMNS}) VALUES ({_MARKS})", structs.astuple(row)
        )
        if done.rowcount == 1:
            fresh.append(row)
    if fresh:
        db.execute(
            "DELETE FROM events WHERE rowid NOT IN"
            " (SELECT rowid FROM events ORDER BY rowid DESC LIMIT ?)",
            (_MOST,),
        )
    return fresh


def newest(db: sqlite3.Connection, most: int) -> list[EventRow]:
    """At most that many, the oldest of them first."""
    found = db.execute(f"SELECT {_COLUMNS} FROM events ORDER BY rowid DESC LIMIT ?", (most,))
    return [EventRow(*row) for row in reversed(found.fetchall())]


def counts(db: sqlite3.Connection) -> dict[str, int]:
    """How many of each kind are kept."""
    found = db.execute("SELECT kind, COUNT(*) FROM events GROUP BY kind ORDER BY kind")
    return dict(found.fetchall())


def note_actions(db: sqlite3.Connection, row: EventRow, text: str) -> None:
    """Keep what the actions for it said."""
    db.execute("UPDATE events SET actions=? WHERE rank=? AND made=? AND serial=?", (text, *row.key))
