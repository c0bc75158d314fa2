"""The rank that a Python program gave to a process which it started by multiprocessing, where no
variable of its environment says so: `torch.multiprocessing.spawn` holds the number of each, and the
function that a process runs often has its rank and the world size among its arguments.

By the order of their start alone, a rank that has ended is not missed, and those behind it get the
wrong numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ..model.capture import Frame, NodeCapture, RankCapture
from . import connections, reaped
from .group_lists import SET_UP
from .start_arguments import ARGUMENTS, GIVEN

# A note begins so, and says what numbers the ranks instead.
BY_ORDER = "no process of this job has a rank in its environment or arguments: ranks are numbered "

_MOST = 1024  # ranks of one host


class Told(Struct, frozen=True):
    """What a process was started as; -1 for what it does not show."""

    given: int = -1
    rank: int = -1
    world_size: int = -1


def take(capture: NodeCapture) -> None:
    """Number the ranks as they were started, where so far only the order of their start numbers
    them and all of them show it; a number between theirs that none of them has is of one that has
    ended.
    """
    noted = next((note for note in capture.notes if note.startswith(BY_ORDER)), "")
    living = [rank for rank in capture.ranks if not rank.gone]
    told = [_told(rank) for rank in living]
    numbers = _numbers(living, told)
    if not noted or not numbers:
        return
    here = _of_this_host(numbers, told)
    whole = max(one.world_size for one in told)
    if whole <= _MOST and _has_met(living) and connections.meet_here([r.pid for r in living]):
        here |= set(range(whole))
    gone = [rank for rank in capture.ranks if rank.gone]
    missing = sorted(here - set(numbers))
    missing += range(max(here) + 1, max(here) + 1 + len(gone) - len(missing))
    # Torch's `join`, which has waited for a process that is no zombie, ends all others where it failed.
    by_torch = all(one.given >= 0 for one in told) and _has_met(living)
    joined = 0 if by_torch and reaped.ended_well([rank.pid for rank in living]) else None
    waited_for = missing[len(gone) :]
    gone += [
        RankCapture(pid=0, rank=number, node=capture.node, gone=True, exit_code=joined)
        for number in waited_for
    ]
    size = len(here | set(missing))
    world = max([max(here | set(missing)) + 1, *(one.world_size for one in told)])
    for rank, number in zip([*living, *gone], [*numbers, *missing], strict=True):
        rank.rank, rank.local_rank = number, number - min(here)
        rank.world_size, rank.local_world_size = world, size
    capture.ranks = sorted([*living, *gone], key=lambda rank: rank.rank)
    capture.notes.remove(noted)
    capture.notes.append(f"{BY_ORDER}by the arguments with which they were started")
    if waited_for and joined is not None:
        capture.notes.append(reaped.note(waited_for, "torch.multiprocessing.spawn"))


def _numbers(living: Sequence[RankCapture], told: Sequence[Told]) -> list[int]:
    """The rank of each of those that live; [] where they do not show it, or not each another one."""
    worlds = {one.world_size for one in told}
    numbers = [one.rank for one in told]
    if len(worlds) == 1 and _are_ranks(numbers):
        return numbers
    numbers = [one.given for one in told]
    # Torch's numbers begin anew on each node.
    alone = all(rank.world_size == rank.local_world_size for rank in living)
    return numbers if alone and _are_ranks(numbers) else []


def _are_ranks(numbers: Sequence[int]) -> bool:
    """Whether each has another one, and they are near one another, as on one host: a variable of
    that name may be something else.
    """
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        return False
    return max(numbers) - min(numbers) < _MOST


def _of_this_host(numbers: Sequence[int], told: Sequence[Told]) -> set[int]:
    """The ranks that were started here: all between those that live, and from torch's first one on."""
    first = {
        number - one.given for number, one in zip(numbers, told, strict=True) if one.given >= 0
    }
    low = first.pop() if len(first) == 1 else min(numbers)
    low = low if low >= 0 and max(numbers) - low < _MOST else min(numbers)
    return set(range(min(low, min(numbers)), max(numbers) + 1))


def _has_met(living: Sequence[RankCapture]) -> bool:
    """Whether no rank is in the set-up any more, where one may be waited for that was never
    started.
    """
    return not any(SET_UP in frame.lists for rank in living for frame in _frames(rank))


def _told(rank: RankCapture) -> Told:
    lists: dict[str, list[int]] = {}
    for frame in _frames(rank):
        lists |= {name: own for name, own in frame.lists.items() if name in (GIVEN, ARGUMENTS)}
    own, world, *_ = [*lists.get(ARGUMENTS, []), -1, -1]
    return Told(lists.get(GIVEN, [-1])[0], own, world_size=world)


def _frames(rank: RankCapture) -> Iterator[Frame]:
    threads = rank.samples[-1].threads if rank.samples else []
    return (frame for thread in threads for frame in thread.frames)
