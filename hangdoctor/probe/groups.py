"""The process groups of this rank, known by member set, with their sequence numbers."""

from __future__ import annotations

from typing import Any

from ..group_id import group_uid
from . import format as fmt
from . import torchnames
from .box import Box


class GroupEntry:
    """One group: its place in the box and what has been counted in it."""

    __slots__ = ("directed", "index", "members", "named", "seq")

    def __init__(self, index: int, members: list[int]) -> None:
        self.index = index
        self.members = members  # global ranks, in the group's own order
        self.seq = 0  # collectives
        self.directed: dict[tuple[int, int], int] = {}  # (peer, SEND or RECV) -> count
        self.named: dict[str, int] = {}  # new_group, monitored_barrier ...: count by name

    def next_named(self, name: str) -> int:
        count = self.named[name] = self.named.get(name, 0) + 1
        return count

    def next_directed(self, peer: int, direction: int) -> int:
        count = self.directed[peer, direction] = self.directed.get((peer, direction), 0) + 1
        return count


class Groups:
    """All groups that this rank is or was in. Equal member sets are told apart by the order of their creation."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self.by_id: dict[int, GroupEntry] = {}
        self.default: GroupEntry | None = None
        self._instances: dict[frozenset[int], int] = {}
        self._timeout_ms = 0

    def sync(self) -> None:
        """Learn of groups that came, in the order of their creation, and forget those that are gone."""
        live = torchnames.live_groups()
        fresh: dict[int, GroupEntry] = {}
        for pg, members in live:
            known = self.by_id.get(id(pg))
            # The same id with other members is another group at a dead one's address.
            fresh[id(pg)] = known if known is not None and known.members == members else self._add(pg, members)
        self.by_id = fresh
        default = torchnames.default_group()
        self.default = fresh.get(id(default)) if default is not None else None

    def find(self, pg: Any) -> GroupEntry | None:
        """The entry of a group that was not known a moment ago; None where this rank is no member of it."""
        self.sync()
        return self.default if pg is None else self.by_id.get(id(pg))

    def expected_world(self, world_size: int) -> GroupEntry:
        """The default group before it exists, so that a rank stuck in its making can be found under its name."""
        return self._entry(list(range(world_size)), self._instances.get(frozenset(range(world_size)), 0), "")

    def _add(self, pg: Any, members: list[int]) -> GroupEntry:
        key = frozenset(members)
        instance = self._instances.get(key, 0)
        self._instances[key] = instance + 1
        self._note_timeout(pg)
        return self._entry(members, instance, torchnames.group_name(pg))

    def _note_timeout(self, pg: Any) -> None:
        """The shortest of all: a watcher must look before it ends the job."""
        told = round(torchnames.group_timeout_s(pg) * 1000)
        if 0 < told < (self._timeout_ms or 1 << 62):
            self._timeout_ms = told
            self._box.put(fmt.H_TIMEOUT_MS, told)

    def _entry(self, members: list[int], instance: int, name: str) -> GroupEntry:
        uid = group_uid(members, instance)
        return GroupEntry(self._box.add_group(uid, len(members), members_text(members), name, instance), members)


def members_text(members: list[int]) -> str:
    """Ascending ranks as runs of one step: ``0-3``, ``0-28:4``, ``1,5-7`` for [1, 5, 6, 7]."""
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
            parts.append(f"{ranks[i]}-{ranks[j]}" + (f":{step}" if step > 1 else ""))
            i = j + 1
    return ",".join(parts)
