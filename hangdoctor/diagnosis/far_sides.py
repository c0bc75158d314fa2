"""Who has the other end of the connection that a rank is blocked on: a server, or another rank."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ..model.capture import Frame
from ..stacks.user_code import is_users
from . import findings as f
from .findings import Holding
from .held_by import command_of, python_threads
from .view import RankView


def add(held: Holding | None, view: RankView, ranks: Sequence[RankView]) -> Holding | None:
    """The same, with the other end where it is a connection whose other end is known."""
    if not isinstance(held, f.OnDescriptor):
        return held
    far = view.capture.far_ends.get(held.path)
    if far is None:
        return held
    command = command_of(far.argv, far.name)
    side = f.FarSide(far.address, far.pid, command)
    for other in ranks:
        if other.node == view.node and other.pid == far.pid:
            side = f.FarSide(far.address, far.pid, command, other.rank, threads=_threads(other))
    return structs.replace(held, far=side)


def _threads(view: RankView) -> tuple[tuple[str, Frame], ...]:
    """Name and line of the threads that are in the user's code: which of them serves is not known."""
    found: list[tuple[str, Frame]] = []
    for thread in python_threads(view):
        own = next((frame for frame in thread.frames if is_users(frame)), None)
        if own is not None:
            found.append((thread.name or str(thread.tid), own))
    return tuple(found)
