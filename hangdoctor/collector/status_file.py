"""What a collector says of its job for who watches many: `hangdoctor-status.json` in the job's
folder, 0600, below 4 kB.

Readers need no key, and a collector knows none of them.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, structs

from . import own_json

FILE = "hangdoctor-status.json"
_MAX = 4096
_MAX_NAME = 200
_MAX_SILENT = 20  # nodes by name
_MAX_NODE = 64


class JobStatus(Struct):
    """A job at one time of day, `at`. `idle_s`: since any rank made progress; -1 unknown, as for
    `iteration`.
    """

    schema: str = "hangdoctor.status/1"
    at: float = 0.0
    job: str = ""
    world_size: int = 0
    ranks: int = 0  # that were reported
    living: int = 0
    nodes: int = 0
    silent: list[str] = []  # nodes that do not answer, the first of them
    iteration: int = -1
    pace_s: float = 0.0
    idle_s: float = -1.0
    stalled: bool = False
    ended: bool = False  # the collector has ended
    host: str = ""


def load(folder: Path) -> JobStatus | None:
    """What the collector of this folder wrote last; None where there is nothing to read."""
    return own_json.load(folder / FILE, JobStatus, _MAX)


def save(folder: Path, status: JobStatus) -> None:
    """Write it down.

    Raises:
        CollectorError: it cannot be written, or a file of that name is not ours.
    """
    silent = [name[:_MAX_NODE] for name in status.silent[:_MAX_SILENT]]
    own_json.save(folder / FILE, structs.replace(status, job=status.job[:_MAX_NAME], silent=silent))
