"""The events of trainings (`incidents events`) of all jobs, found by the words of the search."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from . import event_rows, incident_words
from .event_rows import EventRow
from .incident_folders import job_folders
from .incident_search import Query

_MOST = 10_000  # of one job, the newest: as many as its index keeps
_BUSY_S = 5.0
_QUERY_S = 10.0  # a view in someone's file can go on for ever


class Event(Struct):
    """One event of any job; `place` is its job's folder by name, `user` the owner of that."""

    place: str
    folder: str
    user: str
    event: EventRow


def find(roots: Iterable[Path], query: Query) -> tuple[list[Event], list[str]]:
    """(the events that fit, newest first; what could not be read). Only in folders of this user: an
    SQLite file of another user's is never opened.
    """
    phrases = incident_words.wanted(query.words)
    found: list[Event] = []
    unread: list[str] = []
    folders = dict.fromkeys(folder for root in roots for folder in job_folders(root.absolute()))
    for folder in folders:
        try:
            rows = _rows(folder)
        except (sqlite3.Error, OSError, msgspec.ValidationError) as error:
            unread.append(f"{folder}: {error}")
            continue
        user = incident_words.user_name(os.geteuid())
        events = (Event(folder.name, str(folder), user, row) for row in rows)
        found += [one for one in events if _fits(one, query) and _has(one, phrases)]
    return sorted(found, key=lambda one: -one.event.at), unread


def _rows(folder: Path) -> list[EventRow]:
    path = folder / "incidents" / "index.sqlite"
    with contextlib.suppress(FileNotFoundError):
        if path.is_symlink() or path.stat().st_uid != os.geteuid():
            return []
        end = time.monotonic() + _QUERY_S
        address = f"{path.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, timeout=_BUSY_S, uri=True)) as db:
            db.set_progress_handler(lambda: time.monotonic() > end, 100_000)
            return event_rows.newest(db, _MOST) if _has_events(db) else []
    return []


def _has_events(db: sqlite3.Connection) -> bool:
    """Whether the index is of a version that keeps events."""
    asked = "SELECT 1 FROM sqlite_master WHERE type='table' AND name='events'"
    return db.execute(asked).fetchone() is not None


def _fits(one: Event, query: Query) -> bool:
    row, job = one.event, query.job.lower()
    return (
        row.at >= query.since
        and (job in row.job.lower() or job in one.place.lower())
        and query.user in ("", one.user)
        and query.node in ("", row.node)
    )


def _has(one: Event, phrases: Sequence[tuple[str, bool]]) -> bool:
    """Whether all phrases are among its words, the last word of some only begun."""
    row = one.event
    texts = (row.kind, row.job, one.place, one.user, row.node, f"rank{row.rank}", row.text)
    words = f" {incident_words.GAP} ".join(map(incident_words.split, texts))
    return all(
        re.search(rf"(?<!\S){re.escape(phrase)}" + ("" if open_end else r"(?!\S)"), words)
        for phrase, open_end in phrases
    )
