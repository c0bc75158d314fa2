"""Which ranks run the same program, from the structure of the groups alone.

Frameworks number ranks in many orders: pipeline stages outermost or innermost, context and expert
parallel ranks in between. The groups show what the number does not. Ranks that are in groups of the
same kinds run the same program, unless they are at different places of a group along which tensors are
sent: a pipeline. Colour refinement in one round; more is not needed, since the kinds of groups
(`GroupTable.role`) hold size, distances and name already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...model.operations import RankOps
from .group_members import GroupTable, Role
from .keys import P2P_NAMES

Program = tuple[tuple[Role, int], ...]  # kinds of groups; the place in those of a pipeline, else -1

_SAMPLE = 256  # ranks whose transfers show which kinds of groups are pipelines
_NEAR = 256  # ranks of one program that are ordered by how alike they are


class Programs:
    """Ranks by program. Everything is found when it is asked for."""

    def __init__(self, ops: Mapping[int, RankOps], groups: GroupTable) -> None:
        self._ops, self._groups = ops, groups
        self._in_order = sorted(ops)
        # Of these it is not known who else is in them: they part no ranks.
        self._unsure = {uid for some in ops.values() for uid in some.unsure}
        self._found: dict[int, Program] = {}
        self._firsts: dict[int, frozenset[Role]] = {}
        self._like: dict[int, list[int]] = {}
        self._ranks: dict[Program, list[int]] | None = None
        self._pipelines: frozenset[Role] | None = None
        self._chains: dict[int, tuple[int, int]] = {}  # rank: length of its chain, place in it

    def of(self, rank: int) -> Program:
        """The program of a rank, also of one without records if others list its groups."""
        found = self._found.get(rank)
        if found is None:
            found = self._found[rank] = self._program(rank)
        return found

    def like(self, rank: int) -> list[int]:
        """Ranks with records that run the same program, those first that are the most like it."""
        found = self._like.get(rank)
        if found is None:
            found = self._like[rank] = self._most_like(rank)
        return found

    def _most_like(self, rank: int) -> list[int]:
        if self._ranks is None:
            self._ranks = {}
            for other, ops in self._ops.items():
                if ops.operations:
                    self._ranks.setdefault(self.of(other), []).append(other)
        same = [r for r in self._ranks.get(self.of(rank), []) if r != rank]
        some = same[:: 1 + len(same) // _NEAR]
        first = self._first_in(rank)
        return sorted(some, key=lambda r: len(first ^ self._first_in(r)))

    def others(self, rank: int) -> list[int]:
        """Ranks with records that run another part of the same model: first those of its pipeline,
        then those of other replicas.
        """
        beside = {
            r
            for uid in self._groups.of_rank(rank)
            if self._groups.role(uid) in self._pipeline_roles()
            for r in self._groups.members(uid, rank)
        }
        mine = self.of(rank)
        found = [r for r in sorted(beside) if r in self._ops and self.of(r) != mine]
        seen = {self.of(r) for r in found}
        for other in self._in_order if seen else ():
            if len(found) >= _NEAR:
                break
            if other not in beside and self.of(other) in seen:
                found.append(other)
        return found

    @property
    def has_pipeline(self) -> bool:
        """Whether ranks send to one another."""
        return bool(self._pipeline_roles()) or bool(self._chains)

    # ----------------------------------------------------------------- how it is found

    def _program(self, rank: int) -> Program:
        pipelines = self._pipeline_roles()
        parts: list[tuple[Role, int]] = []
        for uid in self._groups.of_rank(rank):
            if uid in self._unsure:
                continue
            role = self._groups.role(uid)
            place = -1
            if role in pipelines:
                place = list(self._groups.members(uid, rank)).index(rank)
            parts.append((role, place))
        if rank in self._chains:
            length, place = self._chains[rank]
            parts.append((("chain", length), place))
        return tuple(sorted(parts, key=str))

    def _first_in(self, rank: int) -> frozenset[Role]:
        """Kinds of groups in which it is the first: programs make such ranks do more than others."""
        found = self._firsts.get(rank)
        if found is None:
            found = self._firsts[rank] = frozenset(
                self._groups.role(uid)
                for uid in self._groups.of_rank(rank)
                if next(iter(self._groups.members(uid, rank)), -1) == rank
            )
        return found

    def _pipeline_roles(self) -> frozenset[Role]:
        if self._pipelines is not None:
            return self._pipelines
        named = {
            self._groups.role(uid) for uid in self._groups.all() if self._groups.axis(uid) == "pp"
        }
        apart: set[tuple[int, int]] = set()
        some = list(self._ops)
        for rank in some[:: 1 + len(some) // _SAMPLE]:
            for peer in _peers(self._ops[rank]):
                role = self._common(rank, peer)
                if role is None:
                    apart.add((rank, peer))
                else:
                    named.add(role)
        self._pipelines = frozenset(named)
        if apart:
            self._chains = _chains(
                (rank, peer) for rank, ops in self._ops.items() for peer in _peers(ops)
            )
        return self._pipelines

    def _common(self, rank: int, peer: int) -> Role | None:
        """The smallest kind of group that both are in, short of the whole job."""
        mine = set(self._groups.of_rank(rank)) & set(self._groups.of_rank(peer))
        roles = [self._groups.role(uid) for uid in mine]
        small = [role for role in roles if int(role[0]) < self._groups.world_size]
        return min(small, key=lambda role: (int(role[0]), str(role)), default=None)


def _peers(ops: RankOps) -> set[int]:
    """Ranks that it sends to or receives from."""
    return {o.peer for o in ops.operations if o.op in P2P_NAMES and o.peer >= 0}


def _chains(edges: Iterable[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Ranks that reach one another by transfers: (how many they are, the place among them)."""
    above: dict[int, int] = {}

    def top(rank: int) -> int:
        while above.setdefault(rank, rank) != rank:
            above[rank] = above[above[rank]]
            rank = above[rank]
        return rank

    for one, other in edges:
        above[top(one)] = top(other)
    together: dict[int, list[int]] = {}
    for rank in sorted(above):
        together.setdefault(top(rank), []).append(rank)
    return {
        rank: (len(ranks), place) for ranks in together.values() for place, rank in enumerate(ranks)
    }
