"""The process groups of this rank, known by member set, with their sequence numbers."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from ..model.group_id import hash_members, uid_of
from . import format as fmt
from . import torchnames
from .box import BoxWriter
from .record_core import Directory, Entry

_WIDE = 256
_HASHES_MAX = 64
_ASKED = 64  # groups; each takes some µs
_OF_MPI = 1 << 24  # where the instances of MPI's communicators begin, apart from torch's groups


class GroupEntry(Entry):
    """One group: its place in the box (`index`, `uid_word`) and what has been counted in it.

    `seq` counts its collectives, `next_directed` the others by peer and SEND or RECV, `named`
    new_group and the like by name.
    """

    __slots__ = ("members", "named", "ranks")

    def __init__(
        self, index: int, members: Sequence[int], uid: str = "", ranks: object = None
    ) -> None:
        super().__init__()
        self.index = index
        self.uid_word = int.from_bytes(bytes.fromhex(uid), "little")
        self.seq = 0
        self.members = members  # global ranks, in the group's own order
        self.ranks = ranks  # torch's own table of them: another one is another group
        self.named: dict[str, int] = {}

    def next_named(self, name: str) -> int:
        """The number of the next operation of this name in the group, from 1."""
        count = self.named[name] = self.named.get(name, 0) + 1
        return count


class Groups(Directory):
    """All groups that this rank is in: `default`, and `by_id` for all of them by the id of torch's
    object.

    Equal member sets are distinguished by the order of their creation.
    """

    def __init__(self, box: BoxWriter) -> None:
        self._box = box
        self.by_id: dict[int, GroupEntry] = {}
        self.default: GroupEntry | None = None
        self._expected: GroupEntry | None = None
        self._instances: dict[range | bytes, int] = {}
        self._of_mpi: dict[range | bytes, int] = {}  # the same of communicators
        self._hashes: dict[range, blake2b] = {}
        self._timeout_ms = 0
        self._in_torchs_table = 0  # entries when it was last looked at

    def one_came(self) -> None:
        """After new_group: learn of that group alone, where torch's table has grown by one.

        Jobs have thousands of groups, and to go through them all for each would take seconds.
        """
        count, newest = torchnames.how_many_groups(), torchnames.newest_group()
        if newest is None or count != self._in_torchs_table + 1 or id(newest[0]) in self.by_id:
            self.sync()
            return
        self._in_torchs_table = count
        self.by_id[id(newest[0])] = self._add(*newest)

    def one_went(self, pg: Any) -> None:
        """After destroy_process_group: forget that group alone, where the table has shrunk by one."""
        count = torchnames.how_many_groups()
        entry = self.by_id.get(id(pg))
        if entry is None or entry is self.default or count != self._in_torchs_table - 1:
            self.sync()
            return
        self._in_torchs_table = count
        del self.by_id[id(pg)]
        self._box.end_group(entry.index)

    def sync(self) -> None:
        """Learn of groups that came, in the order of their creation, and forget those that are
        gone.
        """
        self._in_torchs_table = torchnames.how_many_groups()
        live = torchnames.live_groups()
        fresh: dict[int, GroupEntry] = {}
        for pg, ranks in live:
            known = self.by_id.get(id(pg))
            # Another table at the same address is another group where a dead one was.
            if known is not None and known.ranks is ranks:
                fresh[id(pg)] = known
        for name, entry in self.by_id.items():
            if name not in fresh:
                self._box.end_group(entry.index)
        for pg, ranks in live:
            if id(pg) not in fresh:
                fresh[id(pg)] = self._add(pg, ranks)
        self.by_id = fresh
        default = torchnames.default_group()
        self.default = fresh.get(id(default)) if default is not None else None
        if self._expected is not None and self.default is not None:
            self._box.end_group(self._expected.index)
            self._expected = None

    def unrecorded(self) -> int:
        """How many collectives torch was given beyond those that are recorded: by C++, mostly. 0 where
        there are too many groups to ask at each heartbeat.
        """
        entries = list(self.by_id.values())
        if len(entries) > _ASKED:
            return 0
        return torchnames.issued() - sum(entry.seq for entry in entries)

    def named(self, pg: Any) -> GroupEntry | None:
        """The entry of a group that a rare call names."""
        return self.by_id.get(id(pg)) or self.find(pg)

    def find(self, pg: Any) -> GroupEntry | None:
        """The entry of a group that was not known a moment ago; None where this rank is not a
        member of it.
        """
        self.sync()
        return self.default if pg is None else self.by_id.get(id(pg))

    def expected_world(self, world_size: int) -> GroupEntry:
        """The default group before it exists, so that a rank stuck in its making can be found under
        its name.
        """
        members = range(world_size)
        if self._expected is not None:  # an earlier attempt failed
            self._box.end_group(self._expected.index)
        self._expected = self._entry(members, members, self._instances.get(members, 0), "")
        return self._expected

    def of_mpi(self, members: list[int], name: str) -> GroupEntry:
        """The entry of a new communicator of MPI; `members`: ranks of MPI_COMM_WORLD, in its order.

        A library beside torch.distributed, whose groups stay apart from torch's of the same members.
        """
        in_order = as_range(members)
        ascending = in_order if isinstance(in_order, range) else as_range(sorted(members))
        instance = _next(self._of_mpi, ascending) + _OF_MPI
        return self._entry(in_order, ascending, instance, name)

    def end_of_mpi(self, entry: GroupEntry) -> None:
        """Its communicator was freed."""
        self._box.end_group(entry.index)

    def _add(self, pg: Any, ranks: dict[int, int]) -> GroupEntry:
        members = in_order(ranks)
        ascending = members if isinstance(members, range) else as_range(sorted(members))
        instance = _next(self._instances, ascending)
        self._note_timeout(pg)
        return self._entry(members, ascending, instance, torchnames.group_name(pg), ranks=ranks)

    def _note_timeout(self, pg: Any) -> None:
        """The shortest of all: a watcher must look before it ends the job."""
        told = round(torchnames.group_timeout_s(pg) * 1000)
        if 0 < told < (self._timeout_ms or 1 << 62):
            self._timeout_ms = told
            self._box.put(fmt.H_TIMEOUT_MS, told)

    def _entry(
        self,
        members: Sequence[int],
        ascending: Sequence[int],
        instance: int,
        name: str,
        ranks: object = None,
    ) -> GroupEntry:
        uid = uid_of(self._hash(ascending), instance)
        index = self._box.add_group(
            uid, len(members), members_text(ascending), name, instance=instance
        )
        return GroupEntry(index, members, uid, ranks)

    def _hash(self, ascending: Sequence[int]) -> blake2b:
        """Of the members; kept for the few wide groups, where it takes a millisecond."""
        if not isinstance(ascending, range) or len(ascending) < _WIDE:
            return hash_members(ascending)
        known = self._hashes.get(ascending)
        if known is None:
            if len(self._hashes) >= _HASHES_MAX:
                self._hashes.clear()
            known = self._hashes[ascending] = hash_members(ascending)
        return known


def _next(instances: dict[range | bytes, int], ascending: Sequence[int]) -> int:
    """Which group with these members the next one is, from 0."""
    key = ascending if isinstance(ascending, range) else hash_members(ascending).digest()
    instance = instances.get(key, 0)
    instances[key] = instance + 1
    return instance


def in_order(ranks: dict[int, int]) -> Sequence[int]:
    """Global ranks in the order of the group, from torch's table {global rank: rank in the group}."""
    members = list(ranks)
    if list(ranks.values()) != list(range(len(members))):
        members.sort(key=ranks.__getitem__)
    return as_range(members)


def as_range(members: list[int]) -> Sequence[int]:
    """The same ranks; a `range` where they ascend by one step: groups are as wide as jobs, and
    mostly regular.
    """
    if len(members) < 2:
        return range(members[0], members[0] + 1) if members else members
    step = members[1] - members[0]
    if step <= 0 or members[-1] - members[0] != step * (len(members) - 1):
        return members
    regular = range(members[0], members[-1] + 1, step)
    return regular if members == list(regular) else members


def members_text(members: Sequence[int]) -> str:
    """Ascending ranks as runs of one step: ``0-3``, ``0-28:4``, ``1,5-7`` for [1, 5, 6, 7]."""
    if isinstance(members, range) and len(members) > 2:
        return _run(members[0], members[-1], members.step)
    ranks, parts, i = sorted(members), [], 0
    while i < len(ranks):
        step = ranks[i + 1] - ranks[i] if i + 1 < len(ranks) else 1
        j = i
        while j + 1 < len(ranks) and ranks[j + 1] - ranks[j] == step:
            j += 1
        if j == i or (j == i + 1 and step > 1):
            parts.append(str(ranks[i]))
            i += 1
        else:
            parts.append(_run(ranks[i], ranks[j], step))
            i = j + 1
    return ",".join(parts)


def _run(first: int, last: int, step: int) -> str:
    return f"{first}-{last}" + (f":{step}" if step > 1 else "")
