"""Which of the ranks that make groups of their own members does another one wait for?"""

from __future__ import annotations

from collections.abc import Mapping

LOCAL = "local "  # before the members, in the `detail` of an operation
_ENOUGH = 2  # ranks that wait in one such call

Asked = Mapping[int, tuple[int, ...]]  # the members that each rank asks for


def missed(asked: Asked) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
    """(the one rank that is all that a group lacks and makes another one, the group, who waits there); None
    where nothing singles one out.
    """
    calls: dict[tuple[int, ...], list[int]] = {}
    for rank, members in asked.items():
        calls.setdefault(members, []).append(rank)
    found: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    for members, present in calls.items():
        lacking = [rank for rank in members if rank not in present]
        if len(lacking) == 1 and len(present) >= _ENOUGH and lacking[0] in asked:
            found[lacking[0]] = members, tuple(sorted(present))
    if len(found) != 1 or len(calls) < 2:
        return None
    [(rank, (members, waiting))] = found.items()
    return rank, members, waiting
