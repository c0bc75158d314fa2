"""One job at the moment of its capture: the evidence with the look-ups that every pass needs."""

from __future__ import annotations

from ...model.layout import Layout
from ...model.operations import Operation
from .evidence import OpsEvidence
from .frontier import Frontier, device_frontier, find_frontier, open_operations
from .group_members import GroupTable
from .keys import SENDS, Collectives, Counter, Key, StoreCalls, counter_of, key_of
from .overlap import call_of, flags_tell, overlapping_calls
from .same_program import Programs

_NOTHING = Frontier([], [], [])
# Store operations of a group's members alone.
_OF_THE_GROUP = frozenset({"destroy_process_group", "monitored_barrier"})
_BEFORE_ALL = frozenset({"init_process_group", "store_wait"})


class Scene:
    """`world_size`, `groups`, `frontiers` by rank, `held`: ranks that are stopped or dead,
    `moving`: that go on.

    `obscured`: ranks that wait in an operation of a group that nothing names.
    """

    def __init__(
        self, evidence: OpsEvidence, moving: set[int], obscured: dict[int, Operation] | None = None
    ) -> None:
        self.obscured = obscured or {}
        self.evidence = evidence
        self.moving = moving
        self.ops = evidence.ops
        self.world_size = world_size_of(evidence)
        self.layout: Layout | None = evidence.layout
        self.groups = GroupTable(evidence.ops.values(), self.world_size, evidence.layout)
        self.groups.complete(evidence.ops.keys())
        self.programs = Programs(self.ops, self.groups)
        self.held = evidence.stopped | evidence.dead.keys()
        self._completed: dict[int, dict[Counter, int]] = {}
        self.frontiers = self._find_frontiers()
        self._posted: dict[int, dict[Counter, int]] = {}

    def _find_frontiers(self) -> dict[int, Frontier]:
        opened = {rank: open_operations(ops) for rank, ops in self.ops.items()}
        opened = {rank: self._undelivered(rank, opened) for rank in opened}
        by_events = any(ops.sees_starts for ops in self.ops.values())
        some_started = any(o.state == "started" for some in opened.values() for o in some)
        self._overlapping = overlapping_calls(self.groups, self.ops, opened)
        overtaken = self.overtaken

        def marked(op: Operation) -> bool:
            return op.asynchronous or overtaken(op)

        found: dict[int, Frontier] = {}
        for rank, ops in self.ops.items():
            mine = opened[rank]
            if rank in (self.evidence.unrecorded or {}):
                found[rank] = _NOTHING
            elif ops.runs_ahead:
                beside = marked if flags_tell(mine) else overtaken
                starts_known = ops.sees_starts if by_events else some_started
                found[rank] = device_frontier(ops, mine, starts_known, beside)
            else:
                found[rank] = find_frontier(ops, mine, rank in self.evidence.outside)
        return found

    def _undelivered(self, rank: int, opened: dict[int, list[Operation]]) -> list[Operation]:
        """What a rank has open, without sends that its peer has received: no call shows their end
        where the rank waits for their handles later.
        """
        mine = opened[rank]
        if not any(op.asynchronous and op.op in SENDS for op in mine):
            return mine
        return [op for op in mine if not self._is_received(op, rank, opened.get(op.peer, []))]

    def _is_received(self, op: Operation, rank: int, of_peer: list[Operation]) -> bool:
        if op.op not in SENDS or not op.asynchronous or op.peer not in self.ops:
            return False
        key = key_of(op, rank)
        received = self.completed(op.peer).get(key.counter, -1) >= key.number
        return received and all(key_of(other, op.peer) != key for other in of_peer)

    def overtaken(self, op: Operation) -> bool:
        """Whether operations that were called after such a one end before it."""
        return call_of(self.groups, op) in self._overlapping

    def frontier(self, rank: int) -> Frontier:
        """Where a rank is; empty where it has no records."""
        return self.frontiers.get(rank, _NOTHING)

    def finished(self, rank: int) -> bool:
        """Whether the rank ended cleanly."""
        ops = self.ops.get(rank)
        return ops is not None and ops.finished

    def known(self, rank: int) -> bool:
        """Whether anything shows where the rank is; of a dead or stopped rank that is enough to
        know.
        """
        return rank in self.held or (rank in self.ops and not self.frontiers[rank].lost)

    def lost(self, rank: int) -> bool:
        """Whether the rank has records, but none of where its device is."""
        return rank in self.ops and self.frontiers[rank].lost

    def members(self, key: Key, rank: int) -> list[int] | range:
        """Ranks that must come to the instance; `rank` is one that did."""
        transfer = key.transfer
        if transfer is not None:
            if min(transfer.source, transfer.destination) < 0:  # a receive from any rank
                return [rank]
            return [transfer.source, transfer.destination]
        if key.store_op and key.store_op not in _OF_THE_GROUP:
            # set-up is everyone's, also of ranks that will not be in the group
            return range(self.world_size)
        found = self.groups.members(key.group, rank)
        return found if isinstance(found, (list, range)) else list(found)

    def posted(self, rank: int) -> dict[Counter, int]:
        """The highest number that a rank with records has come to on each counter, as far as they
        go back.
        """
        found = self._posted.get(rank)
        if found is None:
            found = self._posted[rank] = self._left_out(rank)
            ahead = _only_enqueued(self.frontier(rank))
            for op in self.ops[rank].operations:
                if not (ahead and id(op) in ahead):
                    found[counter_of(op, rank)] = op.seq
        return found

    def called(self, rank: int) -> dict[Counter, int]:
        """As `posted`, with what its program has called and its GPU has not come to."""
        found = self._left_out(rank)
        for op in self.ops[rank].operations:
            found[counter_of(op, rank)] = op.seq
        return found

    def _left_out(self, rank: int) -> dict[Counter, int]:
        """What the rank has completed by its counters alone."""
        ops = self.ops.get(rank)
        told = ops.completed if ops is not None else {}
        return {Collectives(group): last for group, last in told.items()}

    def completed(self, rank: int) -> dict[Counter, int]:
        """The highest number that the rank has completed on each counter, as far as its records go
        back.
        """
        found = self._completed.get(rank)
        if found is None:
            found = self._completed[rank] = self._left_out(rank)
            ops = self.ops.get(rank)
            for op in ops.operations if ops is not None else ():
                if op.state == "done":
                    found[counter_of(op, rank)] = op.seq
        return found

    def passed(self, rank: int, key: Key) -> bool:
        """Whether the rank has been at the instance, or is beyond it."""
        posted = self.posted(rank)
        if posted.get(key.counter, -1) >= key.number:
            return True
        if key.store_op in _BEFORE_ALL:
            # Whoever communicates has been through set-up.
            return any(not isinstance(counter, StoreCalls) for counter in posted)
        return False

    def find(self, rank: int, key: Key) -> Operation | None:
        """The rank's own record of an instance, None where it has none (any more)."""
        ops = self.ops.get(rank)
        group, number = key.group, key.number
        for op in reversed(ops.operations) if ops is not None else ():
            if op.seq == number and op.group == group and key_of(op, rank) == key:
                return op
        return None


def _only_enqueued(frontier: Frontier) -> set[int]:
    """Records that the host has entered and the device has not come to."""
    if frontier.active is frontier.open or len(frontier.active) == len(frontier.open):
        return set()
    return {id(o) for o in frontier.open} - {id(o) for o in frontier.active}


def world_size_of(evidence: OpsEvidence) -> int:
    """As given, else as large as the highest rank that anything speaks of."""
    told = max((o.world_size for o in evidence.ops.values()), default=0)
    if evidence.world_size or told:
        return max(evidence.world_size, told)
    ranks = {*evidence.ops, *evidence.silent, *evidence.dead}
    return max(ranks, default=-1) + 1
