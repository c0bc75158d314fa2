"""Where the progress of a job outlives the collector: `history.json` in the job's folder, 0600.

Written whole, beside its place, and renamed; at most a few ten kilobytes.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..errors import BadInput
from ..files import read_of_folder
from ..transport.keys import make_folder, renew_private
from ..watch.job_history import SCHEMA, Kept

FILE = "history.json"
_MAX = 64 << 10


def load(folder: Path) -> Kept | None:
    """What an earlier collector of this folder kept; None where there is none that can be read."""
    try:
        return _decoded(read_of_folder(folder / FILE, _MAX))
    except (OSError, BadInput):
        return None


def save(folder: Path, kept: Kept) -> None:
    """Keep it.

    Raises:
        CollectorError: it cannot be written, or a file of that name is not ours.
    """
    data = msgspec.json.encode(kept)
    renew_private(make_folder(folder) / FILE, data, lambda there: _decoded(there) is not None)


def _decoded(data: bytes) -> Kept | None:
    try:
        found = msgspec.json.decode(data, type=Kept)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.schema == SCHEMA else None
