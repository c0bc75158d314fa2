"""Process groups by name: who is in each, and what a person calls it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from ...model.layout import Layout
from ...model.operations import Group, RankOps
from ...text.group_words import group_words
from ...text.ranges import format_ranks
from .safe_text import cut_list

_AXES = ("tp", "dp", "pp")


class GroupNames:
    """All groups that some rank's records speak of."""

    def __init__(self, ops: Iterable[RankOps], world_size: int, layout: Layout | None) -> None:
        self._world, self._layout = world_size, layout
        self._groups: dict[str, Group] = {}
        self._members: dict[str, Sequence[int]] = {}
        self._labels: dict[str, str] = {}
        known: dict[str, list[int]] = {}
        for one in ops:
            for group in one.groups:
                if group.uid not in self._groups or (
                    group.name and not self._groups[group.uid].name
                ):
                    self._groups[group.uid] = group
                if group.ranks and group.uid not in self._members:
                    self._members[group.uid] = sorted(group.ranks)
                known.setdefault(group.uid, []).append(one.rank)
        for uid, some in known.items():  # nothing lists its members: those that know it
            self._members.setdefault(uid, sorted(some))

    def members(self, uid: str) -> Sequence[int]:
        """Members of a group, in order; none where no rank knows it."""
        return self._members.get(uid, ())

    def all_members(self) -> Iterable[Sequence[int]]:
        """The members of each group."""
        return self._members.values()

    def axis(self, uid: str) -> str:
        """tp, dp, pp, world, or "" for another group."""
        ranks = self.members(uid)
        if len(ranks) == self._world and self._world > 1:
            return "world"
        if self._layout is not None and len(ranks) > 1:
            for axis in _AXES:
                if len(ranks) == getattr(self._layout, axis) and list(ranks) == self._layout.group(
                    axis, ranks[0]
                ):
                    return axis
        return ""

    def label(self, uid: str) -> str:
        """``TP group 4-5``, ``the whole job``."""
        found = self._labels.get(uid)
        if found is None:
            axis, ranks = self.axis(uid), self.members(uid)
            name = self._groups[uid].name if uid in self._groups else ""
            spelled = cut_list(format_ranks(ranks), 40) if ranks else "of unknown ranks"
            found = group_words(axis or name, spelled)
            self._labels[uid] = found
        return found


def layout_of(groups: Iterable[Sequence[int]], world_size: int) -> Layout | None:
    """The layout that a job's groups imply, None where they do not say.

    All three axes must be seen, each at the stride that the ones before leave (tensor slices are
    neighbours): two axes could be tensor x data as well as data x pipeline parallel.
    """
    sizes: dict[int, set[int]] = {}
    for ranks in groups:
        if not 1 < len(ranks) < world_size:
            continue
        stride = ranks[1] - ranks[0]
        if all(b - a == stride for a, b in pairwise(ranks)):
            sizes.setdefault(stride, set()).add(len(ranks))
    found: list[int] = []
    stride = 1
    for _ in range(3):
        here = sizes.get(stride, set())
        if len(here) != 1:
            return None
        found += here
        stride *= found[-1]
    tp, dp, pp = found
    return Layout(dp=dp, pp=pp, tp=tp) if stride == world_size else None
