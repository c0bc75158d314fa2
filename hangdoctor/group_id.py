"""The name of a process group that all its members agree on; the standard library alone, because ranks import it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def group_uid(ranks: Iterable[int], instance: int = 0) -> str:
    """The same short name for the same member set in every process; `instance` tells equal sets apart (0, 1 ...).

    Returns:
        16 hexadecimal digits: BLAKE2b with 8 bytes over "r0,r1,...#instance", ranks ascending.
    """
    members = ",".join(map(str, sorted(ranks)))
    return hashlib.blake2b(f"{members}#{instance}".encode(), digest_size=8).hexdigest()
