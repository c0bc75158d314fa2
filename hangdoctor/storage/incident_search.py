"""The index of incidents of all jobs: SQLite, brought up to date from their folders at each search.

The folders are the truth; the file can be deleted at any time. The rollback journal works on
network file systems, where WAL does not. Where the file cannot be used, the index is made in memory
for this search alone, and `trouble` says why.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from ..errors import BadInput, BundleError
from . import incident_words
from .incident_folders import Found, bundles
from .incident_words import Entry

VERSION = 2
MAX_ENTRIES = 20_000
_BATCH = 200  # incidents in one transaction: the next writer waits for no more
_BUSY_S = 5.0  # for another one's lock
_TABLE = """
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, stamp INTEGER NOT NULL,
    at REAL NOT NULL, entry BLOB NOT NULL)
"""
_WORDS = {
    True: "CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(text, tokenize='unicode61 remove_diacritics 0')",
    False: "CREATE TABLE IF NOT EXISTS words (rowid INTEGER PRIMARY KEY, text TEXT NOT NULL)",
}


class Query(Struct, frozen=True):
    """What is looked for; empty fields admit all. `since` is a time of day."""

    words: Sequence[str] = ()
    job: str = ""
    user: str = ""
    node: str = ""
    since: float = 0.0

    def fits(self, entry: Entry) -> bool:
        """Whether the entry has the job, user, node and time that are asked for."""
        job = self.job.lower()
        names = (entry.job, entry.place, entry.script)
        return (
            entry.at >= self.since
            and any(job in name.lower() for name in names)
            and self.user in ("", entry.user)
            and (not self.node or self.node in entry.nodes)
        )


def has_fts5() -> bool:
    """Whether this Python's SQLite was built with full-text search."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        try:
            db.execute("CREATE VIRTUAL TABLE t USING fts5(a)")
        except sqlite3.OperationalError:
            return False
    return True


def default_file(fts5: bool) -> Path:
    """The index of this user. Pythons with and without FTS5 each have their own."""
    form = "" if fts5 else "-plain"
    return Path.home() / ".hangdoctor" / f"search-{VERSION}{form}.sqlite"


class IncidentSearch:
    """The incidents below some folders; `trouble` and `unread` say what was left out, and why."""

    def __init__(
        self, roots: Iterable[Path], file: Path | None = None, fts5: bool | None = None
    ) -> None:
        self.roots = list(dict.fromkeys(root.absolute() for root in roots))
        # What is below them, in an index that may have the incidents of other roots as well.
        self._below = tuple(f"{str(root).rstrip('/')}/" for root in self.roots)
        self.fts5 = has_fts5() if fts5 is None else fts5
        self.file = file or default_file(self.fts5)
        self.busy_s = _BUSY_S
        self.trouble = ""
        self.unread: list[str] = []

    def find(self, query: Query) -> list[Entry]:
        """The entries that fit, newest first.

        Raises:
            BundleError: not even an index in memory can be made.
        """
        try:
            return self._find_in(self.file, query)
        except sqlite3.OperationalError as error:  # locked, read-only, full, no locks
            self.trouble = f"{self.file} cannot be used ({error})"
        except (sqlite3.DatabaseError, msgspec.DecodeError):
            self.file.unlink(missing_ok=True)
            self.trouble = f"{self.file} was damaged and was removed"
        except OSError as error:
            self.trouble = f"{self.file} cannot be used ({error.strerror})"
        try:
            return self._find_in(None, query)
        except sqlite3.Error as error:
            raise BundleError(f"the incidents cannot be searched: {error}") from error

    def _find_in(self, file: Path | None, query: Query) -> list[Entry]:
        with contextlib.closing(self._open(file)) as db:
            self.unread = []
            self._refresh(db)
            return list(filter(query.fits, self._matching(db, query)))

    def _open(self, file: Path | None) -> sqlite3.Connection:
        if file is not None:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        # Transactions are begun by hand: IMMEDIATE, so that two writers wait instead of failing.
        db = sqlite3.connect(file or ":memory:", timeout=self.busy_s, isolation_level=None)
        try:
            with _writing(db):
                db.execute(_TABLE)
                db.execute(_WORDS[self.fts5])
        except BaseException:
            db.close()
            raise
        return db

    # ----------------------------------------------------------------- from the folders

    def _refresh(self, db: sqlite3.Connection) -> None:
        """Read what is new, drop what is gone."""
        there = self._there()
        known = dict(db.execute("SELECT path, stamp FROM entries"))
        gone = [path for path in known if path.startswith(self._below) and path not in there]
        fresh = [path for path, one in there.items() if known.get(path) != one.stamp]
        for batch in _batches(gone):
            with _writing(db):
                _drop(db, batch)
        for batch in _batches(fresh):
            read = list(self._read(there[path] for path in batch))
            with _writing(db):
                _drop(db, batch)
                for found, entry, words in read:
                    _add(db, found, entry, words)
        if fresh:
            _bound(db)

    def _there(self) -> dict[str, Found]:
        """The newest bundles, by path."""
        every = {str(found.path): found for root in self.roots for found in bundles(root)}
        newest = sorted(every.values(), key=lambda found: found.stamp, reverse=True)
        return {str(found.path): found for found in newest[:MAX_ENTRIES]}

    def _read(self, some: Iterable[Found]) -> Iterator[tuple[Found, Entry, str]]:
        for found in some:
            try:
                yield found, *incident_words.read(found.path, found.place)
            except BadInput as error:
                self.unread.append(str(error))

    # ----------------------------------------------------------------- the words

    def _matching(self, db: sqlite3.Connection, query: Query) -> Iterator[Entry]:
        phrases = incident_words.wanted(query.words)
        where = ""
        values: list[str] = []
        if phrases:
            condition, values = _by_fts5(phrases) if self.fts5 else _by_like(phrases)
            where = f"WHERE number IN (SELECT rowid FROM words WHERE {condition})"
        rows = db.execute(f"SELECT path, entry FROM entries {where} ORDER BY at DESC", values)
        for path, entry in rows:
            if path.startswith(self._below):
                yield msgspec.json.decode(entry, type=Entry)


_Match = tuple[str, list[str]]  # a condition with marks, and the values of the marks


def _by_fts5(phrases: Iterable[tuple[str, bool]]) -> _Match:
    terms = [f'"{phrase}"{" *" if open_end else ""}' for phrase, open_end in phrases]
    return "words MATCH ?", [" AND ".join(terms)]


def _by_like(phrases: Sequence[tuple[str, bool]]) -> _Match:
    # Words have letters and digits only: there is nothing to escape.
    values = [f"% {phrase}{'' if open_end else ' '}%" for phrase, open_end in phrases]
    return " AND ".join(["' ' || text || ' ' LIKE ?"] * len(values)), values


@contextlib.contextmanager
def _writing(db: sqlite3.Connection) -> Iterator[None]:
    """One transaction: whole, or not at all."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _batches(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in itertools.count(0, _BATCH):
        if first >= len(paths):
            return
        yield paths[first : first + _BATCH]


def _add(db: sqlite3.Connection, found: Found, entry: Entry, words: str) -> None:
    row = (str(found.path), found.stamp, entry.at, msgspec.json.encode(entry))
    number = db.execute(
        "INSERT INTO entries (path, stamp, at, entry) VALUES (?, ?, ?, ?)", row
    ).lastrowid
    db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (number, words))


def _drop(db: sqlite3.Connection, paths: Iterable[str]) -> None:
    for path in paths:
        _drop_where(db, "path = ?", path)


def _drop_where(db: sqlite3.Connection, condition: str, value: object) -> None:
    numbers = f"SELECT number FROM entries WHERE {condition}"
    db.execute(f"DELETE FROM words WHERE rowid IN ({numbers})", (value,))
    db.execute(f"DELETE FROM entries WHERE number IN ({numbers})", (value,))


def _bound(db: sqlite3.Connection) -> None:
    """Of all roots together no more than `MAX_ENTRIES`."""
    oldest = "SELECT at FROM entries ORDER BY at DESC LIMIT 1 OFFSET ?"
    with _writing(db):
        row = db.execute(oldest, (MAX_ENTRIES,)).fetchone()
        if row is not None:
            _drop_where(db, "at <= ?", row[0])
