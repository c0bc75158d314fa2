"""Who is in which process group, over all dumps of a job.

NCCL's dumps list every group's ranks. gloo's do not: they list the ranks of one group, without its
name. What is missing is found, in this order, and each group's way is noted in `RankOps.notes`:

1. the dump's own `pg_config`; for gloo the one nameless list, where the dump knows one group only;
2. `default_pg` is the world;
3. the layout: the ranks whose dumps mention a group lie inside one tensor, data or pipeline
   parallel group of it. Without a layout the one that explains most groups exactly is taken, if
   it is the only one. So a member that never used its group is still found to belong to it;
4. the ranks whose dumps mention the group.

In steps 3 and 4 the names that processes gave a group are compared, since nothing else is there;
`new_group` numbers groups alike in all processes that create them in the same order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from math import isqrt, prod

from msgspec import Struct

from hangdoctor.model.layout import Layout
from hangdoctor.model.operations import Group, group_uid

from .flight_recorder_format import Dump, creation_order

WORLD = "default_pg"
# Single axes and the pairs that frameworks make groups of: model parallel, replicas of a stage, of
# a slice.
_AXES = (("tp",), ("dp",), ("pp",), ("tp", "pp"), ("dp", "tp"), ("dp", "pp"))


Members = tuple[int, ...]


class Guess(Struct, frozen=True):
    """Members of a group, how they were found, and whether there can be no others."""

    ranks: list[int]
    how: str = ""
    sure: bool = True


class Membership:
    """Groups of every rank: `groups[rank][name]`, with how the member set came about in `how`."""

    def __init__(
        self, dumps: Mapping[int, Dump], world_size: int, layout: Layout | None = None
    ) -> None:
        self.world_size = world_size
        self.groups: dict[int, dict[str, Group]] = {r: {} for r in dumps}
        self.how: dict[int, dict[str, str]] = {r: {} for r in dumps}
        # Groups of which only those are known that mention them: there may be more.
        self.unsure: set[str] = set()
        self._by_list: dict[tuple[int, int], Group] = {}
        self._by_uid: dict[str, Group] = {}
        self._kept: list[list[int]] = []  # so that an id() stays one list's
        holders = _holders(dumps)
        unknown = {
            k: ranks for k, ranks in holders.items() if not _told(dumps[min(ranks)], *k, world_size)
        }
        if layout is not None and _is_contradicted(layout, unknown):
            layout = None
        if layout is None and unknown:
            layout = infer_layout(
                [ranks for ranks in unknown.values() if len(ranks) < world_size], world_size
            )
            origin = "the only regular layout that explains which dumps mention which group"
        else:
            origin = "the job's layout"
        guessed: dict[tuple[str, str], Guess] = {}
        taken: dict[int, list[list[int]]] = defaultdict(list)
        # Groups that most dumps mention are the surest, and leave less to choose from for the
        # others.
        for k, ranks in sorted(unknown.items(), key=lambda item: -len(item[1])):
            guessed[k] = _guess(
                dumps, k, ranks, layout, origin=origin, taken=[g for r in ranks for g in taken[r]]
            )
            for r in ranks:
                taken[r].append(guessed[k].ranks)
        found = {rank: self._found(rank, dump, guessed) for rank, dump in dumps.items()}
        mentioned = _mentioned(dumps, found)
        for rank, dump in dumps.items():
            self._add(rank, dump, found[rank], mentioned)

    def _group(self, ranks: list[int], instance: int) -> Group:
        """One object for each member set and instance; hashing thousands of ranks for each rank
        would be slow.
        """
        found = self._by_list.get((id(ranks), instance))
        if found is None:
            fresh = Group(group_uid(ranks, instance), ranks)
            found = self._by_list[id(ranks), instance] = self._by_uid.setdefault(fresh.uid, fresh)
            self._kept.append(ranks)
        return found

    def _found(
        self, rank: int, dump: Dump, guessed: dict[tuple[str, str], Guess]
    ) -> dict[str, Guess]:
        """The members of each group that a dump mentions, in the order in which they were made."""
        found: dict[str, Guess] = {}
        for name in sorted(_names(dump), key=creation_order):
            description = dump.names.get(name, "")
            told = _told(dump, name, description, self.world_size)
            guess = Guess(told) if told else guessed.get((name, description), Guess([rank]))
            if rank not in guess.ranks:
                how = guess.how or "the dump and this rank, which the dump leaves out"
                guess = Guess(sorted({*guess.ranks, rank}), how, guess.sure)
            found[name] = guess
        return found

    def _add(
        self, rank: int, dump: Dump, found: dict[str, Guess], mentioned: dict[Members, list[str]]
    ) -> None:
        instances: Counter[int] = Counter()
        for name, guess in found.items():
            group = self._group(guess.ranks, 0)
            if name in dump.members:
                # All of its groups are listed: equal member sets are told apart by their order.
                instances[id(group)] += 1
                instance = instances[id(group)] - 1
            else:
                instance = mentioned[tuple(guess.ranks)].index(name)
            uid = self._group(guess.ranks, instance).uid
            description = dump.names.get(name, "")
            self.groups[rank][name] = Group(uid, group.ranks, description or name)
            if not guess.sure:
                self.unsure.add(uid)
            if guess.how:
                self.how[rank][name] = guess.how


def _mentioned(
    dumps: Mapping[int, Dump], found: Mapping[int, Mapping[str, Guess]]
) -> dict[Members, list[str]]:
    """The names of the groups of the same members that gloo's dumps mention, in the order in which they
    were made: one rank may have used one of them alone, another one all.
    """
    names: dict[Members, set[str]] = defaultdict(set)
    for rank, guesses in found.items():
        for name, guess in guesses.items():
            if name not in dumps[rank].members:
                names[tuple(guess.ranks)].add(name)
    return {members: sorted(some, key=creation_order) for members, some in names.items()}


def _names(dump: Dump) -> set[str]:
    return {e.group for e in dump.entries} | set(dump.members)


def _holders(dumps: Mapping[int, Dump]) -> dict[tuple[str, str], list[int]]:
    """Ranks whose dumps mention a group, by the group's name and description."""
    holders: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rank, dump in sorted(dumps.items()):
        for name in _names(dump):
            holders[name, dump.names.get(name, "")].append(rank)
    return dict(holders)


def _told(dump: Dump, name: str, description: str, world_size: int) -> list[int]:
    if name in dump.members:
        return dump.members[name]
    if description == WORLD and world_size:
        return _everybody(world_size)
    return dump.unnamed if dump.groups_seen == 1 else []


@lru_cache(maxsize=2)
def _everybody(world_size: int) -> list[int]:
    """One list, which no one changes, for all dumps and groups."""
    return list(range(world_size))


def _guess(
    dumps: Mapping[int, Dump],
    key: tuple[str, str],
    holders: list[int],
    layout: Layout | None,
    origin: str,
    taken: list[list[int]],
) -> Guess:
    """Members of a group that no dump shows, and how they were found. `taken`: other groups of the
    same ranks.
    """
    size = max((e.size for r in holders for e in dumps[r].entries if e.group == key[0]), default=0)
    if layout is not None:
        fits = [_members(layout, axes, holders[0]) for axes, _ in _around(layout, holders)]
        fits = [ranks for ranks in fits if len(ranks) == size] or fits
        # A program may make a group twice: one that is there already fits better than a wider one.
        least = min(map(len, fits), default=0)
        fits = [ranks for ranks in fits if len(ranks) == least]
        fits = [ranks for ranks in fits if ranks not in taken] or fits
        if fits:
            doubt = f", one of {len(fits)} that fit" if len(fits) > 1 else ""
            if fits[0] in taken:
                doubt = ", as another group of them has"
            return Guess(fits[0], f"from {origin}{doubt}", sure=not doubt)
    how = "from the ranks whose dumps mention it"
    if size > len(holders):
        how += f"; it has {size} members, so {size - len(holders)} are unknown"
    return Guess(holders, how, sure=False)


def _is_contradicted(layout: Layout, unknown: Mapping[tuple[str, str], list[int]]) -> bool:
    """Whether two groups of one kind and of ranks that none share would be one group of the layout. A
    group has one name in all of its members: those of ranks that share none are two.
    """
    taken: dict[tuple[str, Members], set[int]] = {}
    for (_, description), ranks in unknown.items():
        fits = [tuple(_members(layout, axes, ranks[0])) for axes, _ in _around(layout, ranks)]
        if len(ranks) < 2 or not fits or not description:
            continue
        others = taken.setdefault((description, min(fits, key=len)), set(ranks))
        if not others & set(ranks):
            return True
    return False


def _around(layout: Layout, ranks: list[int]) -> Iterator[tuple[tuple[str, ...], int]]:
    """(axes, size) of the groups of a layout, along one axis or two, that all of `ranks` are in;
    those of one member left out.
    """
    places = [layout.coordinates(r) for r in ranks]
    same = {axis for axis in ("tp", "dp", "pp") if all(p[axis] == places[0][axis] for p in places)}
    for axes in _AXES:
        size = prod(getattr(layout, axis) for axis in axes)
        if size > 1 and same | set(axes) == {"tp", "dp", "pp"}:
            yield axes, size


def _members(layout: Layout, axes: tuple[str, ...], rank: int) -> list[int]:
    """The group along some axes that a rank is in."""
    at = layout.coordinates(rank)
    sizes = [range(getattr(layout, axis)) for axis in axes]
    return sorted(layout.rank(**{**at, **dict(zip(axes, c, strict=True))}) for c in product(*sizes))


def infer_layout(holders: list[list[int]], world_size: int) -> Layout | None:
    """The only layout that explains most of these sets of ranks exactly and contradicts none, or
    None.
    """
    scores: dict[Layout, int] = {}
    # Each set of ranks once: thousands of groups of the same few dumps say the same.
    holders = [list(ranks) for ranks in dict.fromkeys(map(tuple, holders))]
    for layout in _layouts(world_size) if holders else ():
        score = 0
        for ranks in holders:
            fits = [size for _, size in _around(layout, ranks)]
            if not fits:
                break
            score += len(ranks) in fits  # all of them are in it: as many are the whole group
        else:
            scores[layout] = score
    best = max(scores.values(), default=0)
    winners = [layout for layout, score in scores.items() if score == best]
    # Layouts that differ only in what they call an axis group the ranks alike: the first one will
    # do.
    same = {_strides(layout) for layout in winners}
    return winners[0] if best and len(same) == 1 else None


def _strides(layout: Layout) -> frozenset[tuple[int, int]]:
    """(step, size) along each axis with more than one rank: what shows which ranks are grouped,
    whatever the axes are called.
    """
    steps = ((1, layout.tp), (layout.tp, layout.dp), (layout.tp * layout.dp, layout.pp))
    return frozenset((step, size) for step, size in steps if size > 1)


def _layouts(world_size: int) -> Iterator[Layout]:
    for tp in _divisors(world_size):
        for dp in _divisors(world_size // tp):
            yield Layout(dp=dp, pp=world_size // tp // dp, tp=tp)


def _divisors(n: int) -> list[int]:
    low = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)})
