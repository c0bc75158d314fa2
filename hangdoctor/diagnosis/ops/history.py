"""What a rank has called, in a form that compares with other ranks.

Tokens say what an operation is to its role, so that they are equal on ranks of the same role in
other replicas: the group's role, the operation, and the peer as a distance or the root as a
position. Numbers anchor the comparison: corresponding groups of two replicas count alike, also when
the oldest records are gone.
"""

from __future__ import annotations

from copy import copy

from ...model.operations import Operation, RankOps
from .group_members import Role
from .keys import P2P_NAMES
from .pending import Pending
from .scene import Scene

Token = tuple[Role, str, int]
LOOK_AHEAD = 64
_LOOK_BACK = 16  # calls by which a place in the program is found again
ELSEWHERE: Token = ((), "elsewhere", 0)  # any calls that are not compared


class History:
    """One rank's records as tokens."""

    __slots__ = (
        "counts",
        "only_active",
        "operations",
        "overwritten",
        "pending",
        "rank",
        "roles",
        "tokens",
    )

    def __init__(self, scene: Scene, rank: int) -> None:
        ops = scene.ops[rank]
        self.rank = rank
        self.operations: list[Operation] = list(ops.operations)
        self.overwritten = ops.overwritten
        self.only_active = ops.only_active
        self.roles: set[Role] = {scene.groups.role(g.uid) for g in ops.groups}  # of its groups
        self.tokens: list[Token] = [_token(scene, rank, op) for op in self.operations]
        self.pending = _pending(scene, rank, self.tokens)
        self.counts = _counts_of_transfers(ops)

    def only(self, roles: set[Role], mark_others: bool) -> History:
        """The collectives on groups of these roles alone; of all else at most a mark that there was
        something.
        """
        part = object.__new__(History)
        part.rank, part.overwritten, part.roles = self.rank, self.overwritten, roles
        part.only_active, part.pending = self.only_active, None
        part.operations, part.tokens, part.counts = [], [], {}
        for token, op in zip(self.tokens, self.operations, strict=True):
            kept = token[0] in roles and op.op not in P2P_NAMES
            if kept or (mark_others and not (part.tokens and part.tokens[-1] is ELSEWHERE)):
                part.tokens.append(token if kept else ELSEWHERE)
                part.operations.append(op)
        return part

    def going_on(self) -> History:
        """The history and what will follow if it goes on as it did after the same calls before."""
        last = len(self.tokens) - 1
        alike = {k: self._alike_back(k) for k in range(last) if self.tokens[k] == self.tokens[last]}
        if not alike:
            return self
        place = max(alike, key=lambda k: (alike[k], k))
        more = slice(place + 1, place + 1 + LOOK_AHEAD)
        longer = copy(self)
        longer.tokens = self.tokens + self.tokens[more]
        longer.operations = self.operations + self.operations[more]
        return longer

    def _alike_back(self, place: int) -> int:
        """How many calls up to `place` are those up to the last one."""
        last, count = len(self.tokens) - 1, 0
        while count < min(place + 1, _LOOK_BACK):
            if self.tokens[place - count] != self.tokens[last - count]:
                break
            count += 1
        return count

    def number(self, i: int, shared: bool) -> tuple[object, ...]:
        """Counter and number of a record, comparable between members of its group, or over ranks of
        a role.
        """
        op, token = self.operations[i], self.tokens[i]
        if shared:
            return (op.group, op.op in P2P_NAMES, op.seq)
        return (token[0], op.op in P2P_NAMES, op.seq)


def _pending(scene: Scene, rank: int, tokens: list[Token]) -> Pending | None:
    """What an active-only dump shows of the rank's place in its program."""
    ops = scene.ops[rank]
    if not ops.only_active or len(ops.places) != len(tokens):
        return None
    return Pending(
        places=[place for place, _ in ops.places],
        numbers=[number for _, number in ops.places],
        roles=[token[0] for token in tokens],
        calls=[(op.op, op.site) for op in ops.operations],
        p2p=[op.op in P2P_NAMES for op in ops.operations],
        completed={scene.groups.role(group): last for group, last in ops.completed.items()},
    )


def _counts_of_transfers(ops: RankOps) -> dict[int, int]:
    """By record, how many sends and receives the rank had made by then, where the recorder counts
    them from the beginning of the process.
    """
    transfers = [i for i, op in enumerate(ops.operations) if op.op in P2P_NAMES]
    if ops.source != "flight_recorder":
        return {i: ops.operations[i].seq for i in transfers}
    if len(ops.places) != len(ops.operations):
        return {}
    return {i: ops.places[i][1] for i in transfers}


def _token(scene: Scene, rank: int, op: Operation) -> Token:
    transfer = op.op in P2P_NAMES
    detail = scene.groups.hop(op.group, rank, op.peer) if transfer else _root_place(scene, op)
    return (scene.groups.role(op.group), op.op, detail)


def _root_place(scene: Scene, op: Operation) -> int:
    if op.root < 0:
        return -1
    members = scene.groups.members(op.group, op.root)
    return members.index(op.root) if op.root in members else op.root
