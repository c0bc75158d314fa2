"""Communicators of mpi4py as process groups of a box: who is in them, by ranks of MPI_COMM_WORLD."""

from __future__ import annotations

from .group_table import GroupEntry, Groups
from .whose_error import is_ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def entry_of(groups: Groups, mpi: Any, comm: Any) -> GroupEntry | None:
    """The entry of a communicator that has just been made; None where this rank is not in it, or MPI
    does not answer. Nothing here waits for another rank.
    """
    if comm == mpi.COMM_NULL:
        return None
    try:
        group, world = comm.Get_group(), mpi.COMM_WORLD.Get_group()
        within = list(range(group.Get_size()))
        members = mpi.Group.Translate_ranks(group, within, world)
        name = comm.Get_name()
        group.Free()
        world.Free()
    except Exception as error:
        if is_ours(error):
            raise
        return None  # MPI's answer to us is nothing of the job's
    known = all(type(rank) is int and rank >= 0 for rank in members)
    return groups.of_mpi(members, name) if known else None


def sender(entry: GroupEntry, status: Any) -> int | None:
    """The rank that sent what a receive from anyone has got; None where the status names none."""
    source = status.Get_source()
    return entry.members[source] if 0 <= source < len(entry.members) else None
