"""Where the progress of a job outlives the collector: `history.json` in the job's folder, 0600, at
most a few ten kilobytes.
"""

from __future__ import annotations

from pathlib import Path

from ..watch.job_history import Kept
from . import own_json

FILE = "history.json"
_MAX = 64 << 10


def load(folder: Path) -> Kept | None:
    """What an earlier collector of this folder kept; None where there is none that can be read."""
    return own_json.load(folder / FILE, Kept, _MAX)


def save(folder: Path, kept: Kept) -> None:
    """Keep it.

    Raises:
        CollectorError: it cannot be written, or a file of that name is not ours.
    """
    own_json.save(folder / FILE, kept)
