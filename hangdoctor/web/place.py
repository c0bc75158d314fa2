"""Where a collector says that its page is: `web.json` in the job's folder, 0600."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

FILE = "web.json"


class Published(Struct):
    address: str
    token: str
    pid: int = 0
    host: str = ""


def published(folder: Path) -> Published | None:
    """What the collector of this folder wrote down; None where none serves a page."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes()[:4096], type=Published)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return None
