"""Histories of two ranks side by side: where does one leave the program that the other follows?

Tokens say what an operation is to its role, so that they are equal on ranks of the same role in other replicas: the
group's role, the operation, and the peer as a distance or the root as a position. Numbers anchor the comparison:
corresponding groups of two replicas count alike, also when the oldest records are gone.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ...operations import Operation
from .groups import Role
from .keys import P2P_NAMES
from .scene import Scene

Token = tuple[Role, str, int]
How = Literal["skipped", "extra", "other", "group"]
_LOOK_AHEAD = 3


class Divergence(Struct):
    """Where `rank` leaves the program of `reference`: `mine` is what it did, `theirs` what the other did there.

    `how`: it skipped `theirs`, did `mine` in excess, did another operation, or the same one on another group.
    """

    rank: int
    reference: int
    how: How
    mine: Operation | None
    theirs: Operation | None
    position: int
    before_records: bool = False  # it happened before the oldest record: only the numbers tell


class History:
    """One rank's records as tokens."""

    __slots__ = ("operations", "overwritten", "rank", "tokens")

    def __init__(self, scene: Scene, rank: int) -> None:
        ops = scene.ops[rank]
        self.rank = rank
        self.operations: list[Operation] = ops.operations
        self.overwritten = ops.overwritten
        self.tokens: list[Token] = [_token(scene, rank, op) for op in ops.operations]

    def roles(self) -> set[Role]:
        """Roles of the groups that the rank made collectives on."""
        return {t[0] for t, o in zip(self.tokens, self.operations, strict=True) if o.op not in P2P_NAMES}

    def only(self, roles: set[Role]) -> History:
        """The collectives on groups of these roles alone."""
        kept = [i for i, t in enumerate(self.tokens) if t[0] in roles and self.operations[i].op not in P2P_NAMES]
        part = object.__new__(History)
        part.rank, part.overwritten = self.rank, self.overwritten
        part.operations = [self.operations[i] for i in kept]
        part.tokens = [self.tokens[i] for i in kept]
        return part

    def number(self, i: int) -> tuple[Role, int, int]:
        """Counter and number of a record, comparable over ranks of a role."""
        op, token = self.operations[i], self.tokens[i]
        return (token[0], token[2] if op.op in P2P_NAMES else 0, op.seq)


def _token(scene: Scene, rank: int, op: Operation) -> Token:
    detail = op.peer - rank if op.op in P2P_NAMES else _root_place(scene, op)
    return (scene.groups.role(op.group), op.op, detail)


def _root_place(scene: Scene, op: Operation) -> int:
    if op.root < 0:
        return -1
    members = scene.groups.members(op.group, op.root)
    return members.index(op.root) if op.root in members else op.root


def compare(mine: History, theirs: History, sites: bool = False) -> Divergence | None:
    """The earliest place where `mine` leaves `theirs`; None where one merely is ahead of the other."""
    start = _start(mine, theirs)
    if start is None:
        return None
    i, j = start
    while i < len(mine.tokens) and j < len(theirs.tokens):
        a, b = mine.operations[i], theirs.operations[j]
        if mine.tokens[i] != theirs.tokens[j] or (sites and a.site != b.site and a.site and b.site):
            return Divergence(mine.rank, theirs.rank, _how(mine, i, theirs, j), a, b, i)
        if a.seq != b.seq and a.op not in P2P_NAMES:
            how: How = "skipped" if a.seq < b.seq else "extra"
            return Divergence(mine.rank, theirs.rank, how, a, b, i, before_records=True)
        i, j = i + 1, j + 1
    return None


def _start(mine: History, theirs: History) -> tuple[int, int] | None:
    if not mine.overwritten and not theirs.overwritten:
        return (0, 0)
    where = {theirs.number(j): j for j in range(len(theirs.tokens) - 1, -1, -1)}
    for i in range(len(mine.tokens)):
        j = where.get(mine.number(i))
        if j is not None and theirs.tokens[j] == mine.tokens[i]:
            return (i, j)
    return None


def _how(mine: History, i: int, theirs: History, j: int) -> How:
    ahead, behind = mine.tokens[i : i + _LOOK_AHEAD], theirs.tokens[j : j + _LOOK_AHEAD]
    a, b = mine.operations[i], theirs.operations[j]
    if _continues(ahead, theirs.tokens[j + 1 : j + 1 + len(ahead)]):
        return "skipped"
    if len(ahead) > 1 and _continues(mine.tokens[i + 1 : i + 1 + len(behind)], behind):
        return "extra"
    if a.op == b.op and a.group != b.group and mine.tokens[i][0] != theirs.tokens[j][0]:
        alike = a.shapes == b.shapes or (a.site == b.site and a.site != "")
        return "group" if alike else "extra"
    return "other" if mine.tokens[i][0] == theirs.tokens[j][0] else "extra"


def _continues(some: list[Token], others: list[Token]) -> bool:
    """Whether both go on alike as far as both go."""
    common = min(len(some), len(others))
    return common > 0 and some[:common] == others[:common]
