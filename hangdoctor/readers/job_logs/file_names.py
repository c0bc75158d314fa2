"""What a file's name tells of its lines: torchrun --log-dir, one file a rank or node, WRF's. Also where such
names stand in the log itself: before the lines that grep found, and above each file that tail shows.

==> rank_3.log <==
"""

from __future__ import annotations

import re
from pathlib import PurePath

from msgspec import Struct

from ...text.late import late

TREE = late(r"(?:^|/)attempt_(\d{1,6})/(\d{1,5})/(?:stdout|stderr|error)[^/]*$")
_RANK_FILE = late(
    r"(?:^|[-_.])(?:global[-_])?rank[-_.]?(\d{1,7})(?=[-_.]|$)|^rsl\.(?:error|out)\.(\d{4,7})$"
    r"|^log\.[a-z_]{2,20}\.(\d{4,6})\.(?:err|out)$|^PET(\d{1,6})\.\w{1,20}LogFile$",
    re.I,
)  # behind the first: WRF's, MPAS's, ESMF's
_NODE_FILE = late(r"(?:^|[-_.])(?:node|host)[-_]([A-Za-z][\w-]{0,60})(?=\.|$)")
_HEADER = late(r"^==> (\S.{0,400}?) <==\s*$")


class NamedFile(Struct, frozen=True):
    """Whose output a file is; -1 and "" for what its name does not tell."""

    rank: int = -1
    local: int = -1
    node: str = ""
    attempt: int = 0


def of_name(path: PurePath) -> NamedFile:
    """By the name, or the folders that torchrun makes."""
    tree = TREE.search(path.as_posix())
    if tree is not None:
        return NamedFile(local=int(tree[2]), attempt=int(tree[1]))
    rank = _RANK_FILE.search(path.name)
    node = _NODE_FILE.search(path.name)
    number = int(next(filter(None, rank.groups()))) if rank else -1
    return NamedFile(rank=number, node=node[1] if node else "")


def under_header(line: str) -> NamedFile | None:
    """Whose the lines below are, where tail, or head, names the file that it shows."""
    match = _HEADER.match(line)
    return of_name(PurePath(match[1])) if match is not None else None
