"""What shortens the wait for a stall: a pause that has a cause already needs no patience.

A capture that begins on evidence is held until the pause has lasted `commit_s`: when the job goes
on before, it is dropped with a line in the log.
"""

from __future__ import annotations

from msgspec import Struct

from .rank_roster import Roster


class Hearing(Struct, frozen=True):
    """How well the collector hears the nodes at one moment."""

    complete: bool = True  # each rank of the world was heard of, or each node that is expected
    arrived: bool = False  # each node that is expected has reported its ranks: no more will come
    fresh: bool = False  # all nodes but the silent ones have said so: no progress since the last
    silent: frozenset[int] = frozenset()  # ranks of nodes that do not answer while others do
    nodes: tuple[str, ...] = ()  # those nodes


class Evidence(Struct, frozen=True):
    """Why a pause is a hang. Seconds since the last progress of any rank."""

    why: str
    begin_s: float  # the capture
    commit_s: float  # the verdict


DIED = Evidence("a rank has died", 1.5, 3.0)
STOPPED = Evidence("a process is stopped", 1.5, 3.9)
SILENT = Evidence("a node does not answer and the other ranks wait", 2.5, 3.9)
OUTSIDE = Evidence("all other ranks wait in operations", 2.0, 3.9)
PARTED = Evidence("all ranks wait, but not in the same operation", 2.0, 3.9)
STILL = Evidence("every rank has had the same stack for 30 s", 0.0, 0.0)
DIED_EARLY = Evidence("a rank has died while the job was starting", 10.0, 15.0)


def find(ranks: Roster, hearing: Hearing) -> Evidence | None:
    """The strongest evidence of now; None where a rank works, some have left, or nothing shows it."""
    if ranks.finished or not hearing.fresh:
        return None
    if ranks.lost and len(ranks.lost) < len(ranks.living):
        return DIED
    if ranks.busy - hearing.silent:
        return None
    waiting = sum(ranks.inside.values())
    if ranks.stopped and 2 * len(ranks.stopped) < len(ranks.living):
        return STOPPED if waiting else None
    others = len(ranks.living) - len(hearing.silent)
    if hearing.silent:
        return SILENT if 0 < len(hearing.silent) < others and waiting else None
    if ranks.outside:
        return OUTSIDE if len(ranks.outside) <= waiting else None
    apart = len(ranks.inside) > 1 and waiting == len(ranks.living)
    return PARTED if apart else None
