"""Two ranks with the same role, by what each of them has pending and how far its counters have come.

A recorder that was asked for active operations alone keeps no history, but numbers every record: its
place in all that the process has recorded. The same operation at another place means that one of
the two ranks has made more calls before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from .group_members import Role


class Pending(Struct):
    """One rank's pending operations, oldest first, as columns."""

    places: list[int]  # in all that the process has recorded
    numbers: list[int]  # by the recorder's count: of the group's collectives, or its transfers
    roles: list[Role]
    calls: list[tuple[str, str]]  # operation and line
    p2p: list[bool]
    completed: dict[Role, int]  # the last completed collective


class Shift(Struct):
    """The same operation at two places: `by` is how many more records `mine` made before it."""

    mine: int  # index of the pending operation
    theirs: int
    by: int


def have_in_common(mine: Pending, theirs: Pending) -> bool:
    """Whether both have the same collective pending, or records at the same place."""
    if not set(mine.places).isdisjoint(theirs.places):
        return True
    return not _collectives(mine).isdisjoint(_collectives(theirs))


def _collectives(pending: Pending) -> set[tuple[Role, int]]:
    columns = zip(pending.roles, pending.numbers, pending.p2p, strict=True)
    return {(role, number) for role, number, p2p in columns if not p2p}


def same_places(mine: Pending, theirs: Pending) -> Iterator[tuple[int, int]]:
    """Indices of records at the same place of both."""
    where = {place: j for j, place in enumerate(theirs.places)}
    for i, place in enumerate(mine.places):
        j = where.get(place)
        if j is not None:
            yield i, j


def shift_of(mine: Pending | None, theirs: Pending | None) -> Shift | None:
    """Where one collective is at another place, and nothing says that the difference is older than
    the program that both run; None else.
    """
    if mine is None or theirs is None:
        return None
    where = {
        (role, number): j
        for j, (role, number, p2p) in enumerate(
            zip(theirs.roles, theirs.numbers, theirs.p2p, strict=True)
        )
        if not p2p
    }
    for i, (role, number) in enumerate(zip(mine.roles, mine.numbers, strict=True)):
        j = where.get((role, number)) if not mine.p2p[i] else None
        if j is None or _are_other_calls(mine.calls[i], theirs.calls[j]):
            continue
        by = mine.places[i] - theirs.places[j]
        if by == 0 or _all_counts_agree(mine, i, theirs, j):
            return None
        return Shift(i, j, by)
    return None


def _are_other_calls(mine: tuple[str, str], theirs: tuple[str, str]) -> bool:
    """Whether one number means two calls of the program: then one of the ranks has called the group
    once more often, and their places show nothing.
    """
    at_two_lines = bool(mine[1] and theirs[1]) and mine[1] != theirs[1]
    return mine[0] != theirs[0] or at_two_lines


def _all_counts_agree(mine: Pending, i: int, theirs: Pending, j: int) -> bool:
    """Whether both had counted alike by then: what one has recorded more is then of other groups,
    as a first rank's own ones.
    """
    if _transfers_before(mine, i) != _transfers_before(theirs, j):
        return False
    common = mine.completed.keys() & theirs.completed.keys()
    return all(count_before(mine, i, r) == count_before(theirs, j, r) for r in common)


def count_before(pending: Pending, i: int, role: Role) -> int:
    """Collectives of groups of this role that were recorded before the pending operation `i`."""
    own = [k for k, r in enumerate(pending.roles) if r == role and not pending.p2p[k]]
    earlier = [pending.numbers[k] for k in own if k < i]
    if earlier:
        return earlier[-1]
    return pending.numbers[own[0]] - 1 if own else pending.completed[role]


def _transfers_before(pending: Pending, i: int) -> int:
    """Sends and receives before the pending operation `i`; -1 where none is pending."""
    own = [k for k in range(len(pending.p2p)) if pending.p2p[k]]
    earlier = [pending.numbers[k] for k in own if k < i]
    if earlier:
        return earlier[-1]
    return pending.numbers[own[0]] - 1 if own else -1


class Inversion(Struct):
    """A pending collective that the other rank has not called, though it has called more of others:
    the two have made their calls in another order.
    """

    mine: int  # index of the pending collective
    extra: bool  # rather a call too many than calls left out


def inversion_of(mine: Pending | None, theirs: Pending | None) -> Inversion | None:
    """Where the calls that two ranks have made, by group, contain one another in no way."""
    if mine is None or theirs is None:
        return None
    called, others = _called(mine), _called(theirs)
    common = called.keys() & others.keys()
    behind = [others[role] - called[role] for role in common if others[role] > called[role]]
    for i, (role, number) in enumerate(zip(mine.roles, mine.numbers, strict=True)):
        if behind and not mine.p2p[i] and role in common and number > others[role]:
            return Inversion(i, extra=called[role] - others[role] <= sum(behind))
    return None


def _called(pending: Pending) -> dict[Role, int]:
    """The last collective of each kind of group that the host has called."""
    last = dict(pending.completed)
    for role, number, p2p in zip(pending.roles, pending.numbers, pending.p2p, strict=True):
        if not p2p:
            last[role] = max(last.get(role, 0), number)
    return last
