"""The name of a process group that all its members agree on; the standard library alone, because
ranks import it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def group_uid(ranks: Iterable[int], instance: int = 0) -> str:
    """The same short name for the same member set in every process; `instance` distinguishes equal
    sets (0, 1 ...).

    Returns:
        16 hexadecimal digits: BLAKE2b with 8 bytes over "r0,r1,...#instance", ranks ascending.
    """
    return uid_of(hash_members(sorted(ranks)), instance)


def hash_members(ascending: Iterable[int]) -> hashlib.blake2b:
    """The part of the name that comes from the members: what groups of one member set have in
    common.
    """
    return hashlib.blake2b(",".join(map(str, ascending)).encode(), digest_size=8)


def uid_of(members: hashlib.blake2b, instance: int) -> str:
    """The name of one of the groups with these members."""
    whole = members.copy()
    whole.update(f"#{instance}".encode())
    return whole.hexdigest()
