"""Where a collector says that its page is: `web.json` in the job's folder, 0600."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from ..errors import BadInput
from ..files import read_of_folder

FILE = "web.json"


class Published(Struct):
    """What is in `web.json`: the page's address as http://HOST:PORT, its token, and who serves it
    where.
    """

    address: str
    token: str
    pid: int = 0
    host: str = ""


def published(folder: Path) -> Published | None:
    """What the collector of this folder wrote down; None where none serves a page."""
    try:
        return msgspec.json.decode(read_of_folder(folder / FILE, 4096), type=Published)
    except (OSError, BadInput, UnicodeDecodeError, RecursionError, msgspec.DecodeError):
        return None
