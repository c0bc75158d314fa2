"""Which ranks made different calls: ranks whose history differs from that of most ranks of the same role."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from ...model.operations import Operation
from .divergence import Divergence, comparable, compare, goes_on_alike
from .group_members import Role
from .history import History
from .keys import P2P_NAMES
from .rhythm import break_of, leaves_own_rhythm
from .roles import in_step_first, kin, references
from .same_line import on_other_group
from .scene import Scene

_VOTERS = 6  # of those in step
_BY_CALLS = ("skipped", "extra", "either", "other")
_ROUNDS = 2  # further ones, after a call that comes later than in another replica
_WITHIN = 64  # members of a group that are asked whether they made the same calls
_SUSPECTS = 256  # more are not compared: a fault that moves so many is none of single ranks


def blame(scene: Scene, suspects: Iterable[int]) -> dict[int, Divergence]:
    """Of `suspects`, those that most ranks with the same role disagree with, each with its earliest
    divergence.

    Votes are taken on what was called first, and on the lines of the calls then: two branches of a
    program may make the same call on two lines.
    """
    ranks = [r for r in suspects if r in scene.ops and scene.ops[r].operations][:_SUSPECTS]
    court = _Court(scene, ranks)
    own = court.own_past()
    if own:
        return own
    for sites in (False, True):
        found = court.vote(sites)
        if found:
            return {r: court.closer_look(d) for r, d in found.items()}
    return court.vote(sites=False, abstain=True)


def confirmed(scene: Scene, ranks: Iterable[int]) -> set[int]:
    """Ranks with pending operations alone that ranks with the same role, at the same place, agree
    with.
    """
    some = [r for r in ranks if r in scene.ops and scene.ops[r].only_active]
    court = _Court(scene, some)
    return {r for r in some if court.agrees_in_step(r)}


class _Court:
    """The suspects, their histories, and the votes on them."""

    def __init__(self, scene: Scene, ranks: list[int]) -> None:
        self.scene = scene
        self.ranks = ranks
        self._histories: dict[int, History] = {}

    def history(self, rank: int) -> History:
        """The records of a rank as tokens, made once."""
        found = self._histories.get(rank)
        if found is None:
            found = self._histories[rank] = History(self.scene, rank)
        return found

    def own_past(self) -> dict[int, Divergence]:
        """Of ranks that wait for one another, some in sends and receives, those that left their own
        rhythm: a stage that left one out may be in the collective that ends the step.

        Only where no rank runs the same program: the stages of a pipeline do not. A round that is
        another one for their neighbours too, as of a batch that is not full, shows nothing; nor does
        the first transfer with a peer: it may as well be that peer's past which should have changed.
        """
        transfers = [rank for rank in self.ranks if self._in_transfer(rank)]
        if not transfers or not all(self._unlike(rank) for rank in self.ranks):
            return {}
        found: dict[int, Divergence] = {}
        for rank in self.ranks:
            history = self.history(rank)
            at = break_of(history)
            if at is not None and not _is_new(history, at[0]):
                mine, before = history.operations[at[0]], history.operations[at[1]]
                found[rank] = Divergence(rank, rank, "own", mine, theirs=before, position=at[0])
        if 2 * len(found) > len(self.ranks) or (found and self._others_break()):
            return {}
        return found

    def _others_break(self) -> bool:
        """Whether a rank outside that exchanges transfers with a suspect left its rhythm too."""
        suspects = set(self.ranks)
        peers: set[int] = set()
        for rank in self.ranks[:_VOTERS]:
            ops = self.scene.ops[rank].operations
            peers |= {o.peer for o in ops if o.op in P2P_NAMES and o.peer in self.scene.ops}
        outside = sorted(peers - suspects)[:_VOTERS]
        return any(break_of(self.history(rank)) is not None for rank in outside)

    def _unlike(self, rank: int) -> bool:
        return not references(self.scene, rank, set())

    def _in_transfer(self, rank: int) -> bool:
        active = self.scene.frontier(rank).active
        return bool(active) and active[0].op in P2P_NAMES

    def vote(self, sites: bool, abstain: bool = False) -> dict[int, Divergence]:
        """Ranks that most of their voters disagree with; `sites`: also about the lines of calls;
        `abstain`: who has nothing in common with a rank does not vote on it.
        """
        found: dict[int, Divergence] = {}
        tied: dict[int, Divergence] = {}
        suspects = set(self.ranks)
        for rank in self.ranks:
            voters = self._in_step(rank) if abstain else references(self.scene, rank, suspects)
            against, total, first = self._ask(rank, voters, sites)
            if first is not None and 2 * against > total:
                found[rank] = first
            elif first is not None and 2 * against == total:
                tied[rank] = first
        if found and (len(self.ranks) == 1 or not _mutual(found)):
            return found
        return self._break_tie({**tied, **found})

    def agrees_in_step(self, rank: int) -> bool:
        """Whether some are in step with the rank, and none of them differs."""
        against, total, _ = self._ask(rank, self._in_step(rank), sites=False)
        return total > 0 and against == 0

    def _in_step(self, rank: int) -> list[int]:
        """Ranks of the same program that have something in common with it, and are no suspects."""
        mine, suspects = self.history(rank), set(self.ranks)
        others = (r for r in in_step_first(self.scene, rank) if r not in suspects)
        return list(islice((r for r in others if comparable(mine, self.history(r))), _VOTERS))

    def _ask(self, rank: int, voters: list[int], sites: bool) -> tuple[int, int, Divergence | None]:
        against = total = 0
        first: Divergence | None = None
        for other in voters:
            difference = compare(self.history(rank), self.history(other), sites)
            if difference is not None and self._runs_another_program(other, difference):
                continue
            total += 1
            if difference is not None:
                against += 1
                if first is None or _explains(difference, first):
                    first = difference
        return against, total, first

    def _runs_another_program(self, other: int, d: Divergence) -> bool:
        """Whether the two make different calls because they are not meant to make the same."""
        mine, theirs = self.history(d.rank), self.history(other)
        if _made_it_after_all(mine, theirs, d) or self._is_missed_by_none(d):
            return True
        if self._is_no_call_for_both(d):
            return True
        return self._shared_by_its_group(d) or self._made_in_own_group(mine, theirs, d)

    def _is_no_call_for_both(self, d: Divergence) -> bool:
        """Whether one of the two collectives at which they part is of a group of its maker's, and
        the other rank has none, or several, in which it would be due: of those drawn for a round.
        """
        if d.before_records or d.how not in (*_BY_CALLS, "swapped"):
            return False
        mine = self._is_not_due(d.mine, d.rank, d.reference)
        return mine or self._is_not_due(d.theirs, d.reference, d.rank)

    def _is_not_due(self, call: Operation, maker: int, other: int) -> bool:
        groups, uid = self.scene.groups, call.group
        if call.op in P2P_NAMES or other in groups.members(uid, maker):
            return False
        role = groups.role(uid)
        like = sum(groups.role(of) == role for of in groups.of_rank(other))
        # Recorders show a group only once it was used.
        return like > 1 or (like == 0 and self.scene.ops[other].source == "blackbox")

    def _shared_by_its_group(self, d: Divergence) -> bool:
        """Whether all members of the group in which it made a call more, or fewer, than its like did so with it:
        no call of theirs is left alone by that. Replicas may make as many calls within as their data or
        their draws ask for.
        """
        call = d.mine if d.how == "extra" else d.theirs
        if call.op in P2P_NAMES or d.before_records or d.how not in _BY_CALLS:
            return False
        own = call.group if d.how == "extra" else self._own_of_that_kind(d)
        return own is not None and self._is_shared_by(d, own)

    def _made_in_own_group(self, mine: History, theirs: History, d: Divergence) -> bool:
        """The same of the collective that it would have left out, which it made later on in its own group of that
        kind, as `_made_it_after_all` has it of one group: its other calls come between.
        """
        call, own = d.theirs, self._own_of_that_kind(d)
        if call.op in P2P_NAMES or d.before_records or d.how not in ("skipped", "either", "other"):
            return False
        if own is None or d.mine.op in P2P_NAMES or not self._is_shared_by(d, d.mine.group):
            return False
        place = next((j for j, op in enumerate(theirs.operations) if op is call), -1)
        if goes_on_alike(mine, d.position, theirs, place + 1):
            return False
        later = (o for o in mine.operations[d.position :] if (o.group, o.op) == (own, call.op))
        made = {o.seq for o in later if o.state == "done" and not o.failed}
        return {call.seq, call.seq + _ROUNDS} <= made

    def _own_of_that_kind(self, d: Divergence) -> str | None:
        """Its only group with the role of that in which the other made its call; None where it is a
        member of that one, or has none or several.
        """
        groups, uid = self.scene.groups, d.theirs.group
        if d.rank in groups.members(uid, d.reference):
            return None
        role = groups.role(uid)
        own = [of for of in groups.of_rank(d.rank) if groups.role(of) == role]
        return own[0] if len(own) == 1 else None

    def _is_shared_by(self, d: Divergence, uid: str) -> bool:
        """Whether all other members of a group made the same calls as it did, up to there and that
        one.
        """
        others = [r for r in self.scene.groups.members(uid, d.rank) if r != d.rank]
        if not 0 < len(others) <= _WITHIN or d.reference in others:
            return False
        return all(other in self.scene.ops and self._alike_up_to(d, other) for other in others)

    def _alike_up_to(self, d: Divergence, other: int) -> bool:
        apart = compare(self.history(d.rank), self.history(other))
        return apart is None or (apart.position > d.position and not apart.before_records)

    def _is_missed_by_none(self, d: Divergence) -> bool:
        """Whether it would have left out a collective of a group of its own that no other member has made
        either: that group of another stage makes more calls in each round.
        """
        if d.how != "skipped" or d.theirs.op in P2P_NAMES or d.before_records:
            return False
        own = self._own_of_that_kind(d)
        if own is None:
            return False
        others = [r for r in self.scene.groups.members(own, d.rank) if r != d.rank]
        if not others or any(r not in self.scene.ops for r in others):
            return False
        last = max((o.seq for o in self.scene.ops[d.rank].operations if o.group == own), default=0)
        return not any(
            o.group == own and o.seq > last and o.op not in P2P_NAMES
            for r in others
            for o in self.scene.ops[r].operations
        )

    def _break_tie(self, tied: dict[int, Divergence]) -> dict[int, Divergence]:
        """Suspects that differ from one another only: other stages make the same calls on common
        groups, and each rank has its own earlier iterations.
        """
        if not tied:
            return {}
        for wide in (False, True):
            odd = {r: d for r, d in tied.items() if self._differs_from_kin(r, set(tied), wide)}
            if odd and len(odd) < len(tied):
                return odd
        # Of what is pending alone, nothing is a round.
        past = {r: self.history(r) for r in tied if not self.history(r).only_active}
        for leaves in (leaves_own_rhythm, break_of):
            odd = {r: tied[r] for r, history in past.items() if leaves(history)}
            if odd and len(odd) < len(tied):
                return odd
        return {}

    def _differs_from_kin(self, rank: int, tied: set[int], wide: bool) -> bool:
        """Whether most of the ranks of other stages disagree with it about the groups that both
        kinds have.

        `wide`: about those over replicas alone, and when anything else comes between them.
        """
        others = kin(self.scene, rank, tied)
        against = 0
        for other in others:
            mine, theirs = self.history(rank), self.history(other)
            common = mine.roles & theirs.roles
            if wide:
                common = {role for role in common if _over_replicas(role)}
            against += compare(mine.only(common, wide), theirs.only(common, wide)) is not None
        return 2 * against > len(others)

    def closer_look(self, d: Divergence) -> Divergence:
        """The same divergence with the lines of the calls compared too, which may place it
        earlier, or show more of it.
        """
        elsewhere = on_other_group(self.scene, d.rank) if d.before_records else None
        if elsewhere is not None:
            return elsewhere
        finer = compare(self.history(d.rank), self.history(d.reference), sites=True)
        if finer is None or finer.before_records or finer.position >= d.position:
            return d
        return finer


def _made_it_after_all(mine: History, theirs: History, d: Divergence) -> bool:
    """Whether the collective that it would have left out is in its own records, under the same number of the
    same group, and it has gone on for long after the call that it made there. Not where the two go on
    alike without that one call: each of its later ones then meets the other's one before.
    """
    if d.how not in ("skipped", "either", "other") or d.theirs.op in P2P_NAMES or d.before_records:
        return False
    place = next((j for j, op in enumerate(theirs.operations) if op is d.theirs), -1)
    if d.how == "skipped" and place >= 0 and goes_on_alike(mine, d.position, theirs, place + 1):
        return False
    later = mine.operations[d.position :]
    made = any((o.group, o.seq, o.op) == (d.theirs.group, d.theirs.seq, d.theirs.op) for o in later)
    again = [o for o in later if (o.group, o.op, o.site) == (d.mine.group, d.mine.op, d.mine.site)]
    return made and len(again) > 2


def _explains(d: Divergence, counted: Divergence) -> bool:
    """Whether a transfer with the wrong rank, which the records have, is why a later count differs."""
    if d.before_records or not counted.before_records or d.position >= counted.position:
        return False
    return d.how == "other" and d.mine.op == d.theirs.op and d.mine.op in P2P_NAMES


def _over_replicas(role: Role) -> bool:
    _, stride, axis, _ = role
    return stride != 1 or axis in ("dp", "world")


def _mutual(found: dict[int, Divergence]) -> bool:
    """Whether they were all accused by one another."""
    return len(found) > 1 and all(d.reference in found for d in found.values())


def _is_new(history: History, position: int) -> bool:
    """Whether it is the first transfer of its direction with its peer."""
    new = history.operations[position]
    if new.op not in P2P_NAMES:
        return False
    before = islice(history.operations, position)
    return not any(o.op == new.op and o.peer == new.peer for o in before)
