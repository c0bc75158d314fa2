"""The jobs of some folders: what each collector wrote last, and the incidents beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from ..collector import status_file
from ..collector.status_file import JobStatus
from ..storage.incident_folders import job_folders
from ..storage.incident_words import Entry, user_name
from ..text.job_names import short_job
from ..web.page_address import published

State = Literal["stalled", "running", "starting", "not watched", "ended", "no status"]
STATES: tuple[State, ...] = ("stalled", "running", "starting", "not watched", "ended", "no status")
MAX_JOBS = 1000
_SILENT_S = 60.0  # several times as long as between two statuses
_OVER = ("ended", "not watched", "no status")
_FORGOTTEN_S = 30 * 86_400.0


class JobRow(Struct):
    """One job. `at` is the time of day of its status or, without one, of its last incident;
    `idle_s`: since any rank made progress, -1 unknown.
    """

    place: str
    folder: str
    user: str
    state: State
    at: float = 0.0
    job: str = ""
    world_size: int = 0
    living: int = 0
    nodes: int = 0
    silent: list[str] = []
    iteration: int = -1
    pace_s: float = 0.0
    idle_s: float = -1.0
    host: str = ""
    page: str = ""  # its address on that host, where the collector serves one
    incidents: int = 0
    last: Entry | None = None


def read_jobs(roots: Iterable[Path], entries: Sequence[Entry], now: float) -> list[JobRow]:
    """All jobs below these folders, stalled ones first; `entries` are their incidents, newest first."""
    newest: dict[str, Entry] = {}
    numbers: Counter[str] = Counter()
    for entry in entries:
        newest.setdefault(entry.folder, entry)
        numbers[entry.folder] += 1
    folders = dict.fromkeys(folder for root in roots for folder in job_folders(root))
    rows = []
    for folder in folders:
        row = _row(folder, status_file.load(folder), now, newest.get(str(folder)))
        row.incidents = numbers[str(folder)]
        if row.state not in _OVER or now - row.at < _FORGOTTEN_S:
            rows.append(row)
    rows += _of_bundles([e for e in entries if Path(e.folder) not in folders], now)
    return sorted(rows, key=lambda row: (_order(row.state), -row.at))[:MAX_JOBS]


def _of_bundles(entries: Sequence[Entry], now: float) -> list[JobRow]:
    """A row for each job of bundles that `dump` saved, which lie in a folder of any name."""
    found: dict[tuple[str, str], JobRow] = {}
    for entry in entries:
        if now - entry.at >= _FORGOTTEN_S:
            continue
        name = short_job(entry.job) or entry.place
        new = JobRow(name, entry.folder, entry.user, "no status", entry.at, entry.job, last=entry)
        found.setdefault((entry.folder, entry.job), new).incidents += 1
    return list(found.values())


def _order(state: State) -> int:
    """What is over is sorted by time alone."""
    return STATES.index("ended" if state in _OVER else state)


def state_of(status: JobStatus | None, now: float) -> State:
    """What a status means at this time of day."""
    if status is None:
        return "no status"
    if status.ended:
        return "not watched" if status.living else "ended"
    if now - status.at > _SILENT_S:
        return "not watched"
    if not status.ranks:
        return "starting"
    if not status.living:
        return "ended"
    return "stalled" if status.stalled else "running"


def _row(folder: Path, status: JobStatus | None, now: float, last: Entry | None) -> JobRow:
    row = JobRow(folder.name, str(folder), _owner(folder), state_of(status, now), last=last)
    if status is None:
        row.at = last.at if last else 0.0
        row.job = last.job if last else ""
        return row
    row.at, row.job, row.host = status.at, status.job, status.host
    row.world_size, row.living = status.world_size, status.living
    row.nodes, row.silent = status.nodes, status.silent
    row.iteration, row.pace_s, row.idle_s = status.iteration, status.pace_s, status.idle_s
    if row.state not in _OVER and (page := published(folder)) is not None:
        row.page = page.address
    if row.state == "stalled" and row.idle_s >= 0:
        row.idle_s += max(0.0, now - status.at)
    return row


def _owner(folder: Path) -> str:
    try:
        return user_name(folder.stat().st_uid)
    except OSError:  # removed meanwhile
        return ""
