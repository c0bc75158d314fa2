"""Which ranks make up a group, and what the group is to its members."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

from ...model.layout import Layout
from ...model.operations import Group, RankOps, group_uid
from ..findings import GroupRef

_AXES = ("tp", "dp", "pp")
_LOOKED_AT = 4096  # members of a group whose distances are compared
_NAMES = {
    "tp": ("tp", "tensor", "model_parallel", "tensor_model_parallel"),
    "dp": ("dp", "data", "data_parallel"),
    "pp": ("pp", "pipe", "pipeline", "pipeline_model_parallel"),
    "world": ("world", "default_pg", "default"),
}
_AXIS_OF_NAME = {name: axis for axis, names in _NAMES.items() for name in names}


def axis_of_name(name: str) -> str:
    """tp, dp, pp or world for the names that frameworks give these groups, else ""."""
    return _AXIS_OF_NAME.get(name.lower().removesuffix("_group"), "")


Role = tuple[int | str, ...]


def _in_steps(ranks: set[int], size: int, stride: int) -> list[list[int]]:
    """The ranks as groups of one size and distance; [] where they do not come out even."""
    left, found = set(ranks), []
    while left:
        first = min(left)
        group = list(range(first, first + size * stride, stride))
        if not left.issuperset(group):
            return []
        left.difference_update(group)
        found.append(group)
    return found


class GroupTable:
    """All groups of a job, by uid.

    Members come from the first rank that lists them; else they are the ranks that know the uid,
    completed by the layout where it has a group around them; `inferred` holds the uids for which it
    had to be so.
    """

    def __init__(self, ops: Iterable[RankOps], world_size: int, layout: Layout | None) -> None:
        self.world_size = world_size
        self.layout = layout
        self.inferred: set[str] = set()
        self._unsure: set[str] = set()  # there may be more members
        self._groups: dict[str, Group] = {}
        self._members: dict[str, Sequence[int]] = {}
        self._roles: dict[str, Role] = {}
        self._axes: dict[str, str] = {}
        self._of_rank: dict[int, list[str]] | None = None
        self._ordinals: dict[str, int] | None = None
        unlisted: dict[str, set[int]] = {}
        for rank_ops in ops:
            self._read(rank_ops, unlisted)
        for uid, known in unlisted.items():
            if uid not in self._members:
                self._members[uid] = self._infer(uid, known)
                self.inferred.add(uid)

    def _read(self, rank_ops: RankOps, unlisted: dict[str, set[int]]) -> None:
        groups, members = self._groups, self._members
        self._unsure.update(rank_ops.unsure)
        for group in rank_ops.groups:
            uid = group.uid
            if uid not in groups or (group.name and not groups[uid].name):
                groups[uid] = group
            if uid in members:
                continue
            if group.ranks:
                members[uid] = group.ranks
            else:
                unlisted.setdefault(uid, set()).add(rank_ops.rank)

    def complete(self, known: Collection[int]) -> None:
        """Add the groups that only ranks without records are in, so that none lists them.

        Where each known rank is in one group of a kind, so are the others: those that no such group
        holds form the missing ones, at the same distances.
        """
        unseen = set(range(self.world_size)).difference(known)
        if not unseen or not known:
            return
        by_role: dict[Role, list[str]] = {}
        for uid in list(self._members):
            by_role.setdefault(self.role(uid), []).append(uid)
        for role, uids in by_role.items():
            size, stride = int(role[0]), int(role[1])
            held = [r for uid in uids for r in self._members[uid]]
            left = unseen.difference(held)
            once = len(held) == len(set(held)) and len(held) + len(left) == self.world_size
            if stride > 0 and left and once and len(left) % size == 0:
                self._add(_in_steps(left, size, stride), self._groups[uids[0]].name)

    def _add(self, found: list[list[int]], name: str) -> None:
        for ranks in found:
            uid = group_uid(ranks)
            if uid not in self._members:
                self._groups[uid] = Group(uid, ranks, name)
                self._members[uid] = ranks
        self._of_rank = self._ordinals = None

    def _infer(self, uid: str, known: set[int]) -> Sequence[int]:
        axis = axis_of_name(self._groups[uid].name)
        if axis == "world":
            return range(self.world_size)
        if self.layout is not None and axis:
            around = self.layout.group(axis, min(known))
            if known <= set(around):
                return around
        return sorted(known)

    def members(self, uid: str, rank: int) -> Sequence[int]:
        """Members of the group; the whole job where it is not known (`rank` took part in it)."""
        found = self._members.get(uid)
        if found is None:
            self.inferred.add(uid)
            found = self._members[uid] = range(self.world_size) if self.world_size else [rank]
        return found

    def all(self) -> Iterable[str]:
        """Uids of all groups."""
        return self._members.keys()

    def of_rank(self, rank: int) -> list[str]:
        """Groups that a rank is in, also one that cannot tell."""
        if self._of_rank is None:
            self._of_rank = {}
            for uid, ranks in self._members.items():
                for member in ranks:
                    self._of_rank.setdefault(member, []).append(uid)
        return self._of_rank.get(rank, [])

    def hop(self, uid: str, rank: int, peer: int) -> int:
        """How far on in the group `peer` is from `rank`; in numbers of ranks where they are not
        both in a listed one.
        """
        members = self.members(uid, rank)
        if len(members) == self.world_size or peer not in members or rank not in members:
            return peer - rank
        return members.index(peer) - members.index(rank)

    def axis(self, uid: str) -> str:
        """tp, dp, pp, world, or "" where the group is something else."""
        found = self._axes.get(uid)
        if found is None:
            found = self._axes[uid] = self._find_axis(uid)
        return found

    def _find_axis(self, uid: str) -> str:
        group = self._groups.get(uid)
        name = axis_of_name(group.name) if group else ""
        ranks = self._members.get(uid, ())
        everyone = len(ranks) == self.world_size and self.world_size > 1
        if everyone and name not in _AXES:
            return "world"
        return name or self._axis_in_layout(ranks)

    def _axis_in_layout(self, ranks: Sequence[int]) -> str:
        if self.layout is None or len(ranks) < 2:
            return ""
        for axis in _AXES:
            size = getattr(self.layout, axis)
            if len(ranks) == size and sorted(ranks) == self.layout.group(axis, min(ranks)):
                return axis
        return ""

    def role(self, uid: str) -> Role:
        """What the group is to its members: equal for corresponding groups of different replicas."""
        found = self._roles.get(uid)
        if found is None:
            ranks = self._members.get(uid, ())
            strides = {b - a for a, b in pairwise(ranks)} if len(ranks) <= _LOOKED_AT else {0}
            stride = strides.pop() if len(strides) == 1 else -1
            found = self._roles[uid] = (len(ranks), stride, self.axis(uid), self._ordinal(uid))
        return found

    def _ordinal(self, uid: str) -> int:
        """0 for the first group of a member set, 1 for the second: equal sets are distinguished by
        their order.
        """
        if self._ordinals is None:
            self._ordinals = {}
            seen: dict[tuple[int, ...], int] = {}
            for other, ranks in self._members.items():
                if isinstance(ranks, range):
                    continue
                members = tuple(ranks)
                self._ordinals[other] = seen[members] = seen.get(members, -1) + 1
        return self._ordinals.get(uid, 0)

    def name(self, uid: str) -> str:
        """Short name for the report's `group` field."""
        group = self._groups.get(uid)
        return self.axis(uid) or (group.name if group and group.name else uid)

    def ref(self, uid: str) -> GroupRef:
        """The group as findings name it."""
        group = self._groups.get(uid)
        name = group.name if group else ""
        members = () if uid in self._unsure else tuple(self._members.get(uid, ()))
        return GroupRef(self.axis(uid), name, members)
