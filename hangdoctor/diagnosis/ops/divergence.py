"""Histories of two ranks side by side: where does one leave the program that the other follows?"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ...model.operations import Operation
from .history import ELSEWHERE, LOOK_AHEAD, History
from .keys import P2P_NAMES
from .pending import have_in_common, inversion_of, same_places, shift_of

_IN_A_ROW = 2  # calls at the same lines, that show where another history goes on alike

How = Literal["skipped", "extra", "either", "swapped", "other", "group", "own"]


class Divergence(Struct):
    """Where `rank` leaves the program of `reference`: `mine` is what it did, `theirs` what the
    other did there.

    `how`: it skipped `theirs`, did `mine` in excess, either of the two (what follows does not show
    which), did `mine` before `theirs` instead of after it, did another operation, or the same one on
    another group; "own": its own earlier iterations are the reference.
    """

    rank: int
    reference: int
    how: How
    mine: Operation
    theirs: Operation
    position: int
    before_records: bool = False  # it happened before the oldest record: only the numbers tell
    again: bool = False  # its own call before `mine` was the same
    fewer: bool = False  # it left out a transfer that is waited for, and did what comes later


def compare(mine: History, theirs: History, sites: bool = False) -> Divergence | None:
    """The earliest place where `mine` leaves `theirs`; None where one merely is ahead of the
    other.
    """
    if mine.only_active or theirs.only_active:
        return _compare_pending(mine, theirs, sites)
    if not mine.overwritten and not theirs.overwritten:
        return _walk(mine, 0, theirs, 0, sites=sites)
    # A group that both are in counts the same thing; corresponding groups merely should count
    # alike.
    for shared in (True, False):
        start = _anchor(mine, theirs, shared)
        found = _walk(mine, start[0], theirs, start[1], sites=sites) if start is not None else None
        if found is not None:
            return found
    return None


def comparable(mine: History, theirs: History) -> bool:
    """Whether anything of the two can be compared: of what is pending alone, often nothing can, nor
    of records of which the one's last are older than the other's first.
    """
    if mine.pending is not None and theirs.pending is not None:
        return have_in_common(mine.pending, theirs.pending)
    if mine.only_active or theirs.only_active:
        return False
    whole = not mine.overwritten and not theirs.overwritten
    return whole or any(_anchor(mine, theirs, shared) for shared in (True, False))


def _compare_pending(mine: History, theirs: History, sites: bool) -> Divergence | None:
    """As `compare`, of records of what has not completed alone: by their places in all that each of
    the processes has recorded, since any number of completed ones lies between them.
    """
    moved = shift_of(mine.pending, theirs.pending)
    first = _first_differing(mine, theirs, sites)
    if moved is not None and (first is None or not _in_another_way(mine, theirs, first)):
        i, j = moved.mine, moved.theirs
        how: How = "skipped" if moved.by < 0 else "extra"
        before = True
    else:
        if first is None:
            return _inverted(mine, theirs)
        i, j = first
        same = _same(mine, i, theirs, j, sites)
        how, before = _how(mine, i, theirs, j, sites=sites), False
        if same:
            how, before = ("skipped" if _number(mine, i) < _number(theirs, j) else "extra"), True
        elif how in ("extra", "either"):
            how = "extra"  # what it left out would be in its counts
            i = _counted_otherwise(mine, i, theirs)
    return Divergence(
        rank=mine.rank,
        reference=theirs.rank,
        how=how,
        mine=mine.operations[i],
        theirs=theirs.operations[j],
        position=i,
        before_records=before,
    )


def _counted_otherwise(mine: History, i: int, theirs: History) -> int:
    """The first pending collective up to `i` that is another call by the same number of the group."""
    if mine.pending is None or theirs.pending is None:
        return i
    others = {
        (theirs.pending.roles[k], theirs.pending.numbers[k]): theirs.pending.calls[k]
        for k in range(len(theirs.operations))
        if not theirs.pending.p2p[k]
    }
    for k in range(i):
        role, number = mine.pending.roles[k], mine.pending.numbers[k]
        call = others.get((role, number)) if not mine.pending.p2p[k] else None
        if call is not None and call != mine.pending.calls[k]:
            return k
    return i


def _in_another_way(mine: History, theirs: History, at: tuple[int, int]) -> bool:
    """Whether the calls at one place show more than that one of the two has made more of them: they
    are swapped, or one call is on another group.
    """
    i, j = at
    return _how(mine, i, theirs, j, sites=True) in ("swapped", "group")


def _inverted(mine: History, theirs: History) -> Divergence | None:
    """By the counts of calls alone, where no two pending ones can be compared."""
    found = inversion_of(mine.pending, theirs.pending)
    if found is None or not theirs.operations:
        return None
    how: How = "extra" if found.extra else "skipped"
    op = mine.operations[found.mine]
    return Divergence(
        rank=mine.rank,
        reference=theirs.rank,
        how=how,
        mine=op,
        theirs=theirs.operations[0],
        position=found.mine,
        before_records=not found.extra,
    )


def _first_differing(mine: History, theirs: History, sites: bool) -> tuple[int, int] | None:
    """The first records at one place that are other calls, or the same one by another number."""
    if mine.pending is None or theirs.pending is None:
        return None
    for i, j in same_places(mine.pending, theirs.pending):
        if not _same(mine, i, theirs, j, sites):
            return i, j
        if mine.pending.numbers[i] != theirs.pending.numbers[j]:
            return i, j
    return None


def _number(history: History, i: int) -> int:
    """By the recorder's own count."""
    return history.pending.numbers[i] if history.pending is not None else 0


def _walk(mine: History, i: int, theirs: History, j: int, sites: bool) -> Divergence | None:
    while i < len(mine.tokens) and j < len(theirs.tokens):
        a, b = mine.operations[i], theirs.operations[j]
        if not _same(mine, i, theirs, j, sites):
            how = _how(mine, i, theirs, j, sites=sites)
            return Divergence(mine.rank, theirs.rank, how, a, theirs=b, position=i)
        if mine.tokens[i] is not ELSEWHERE and (more := _made_more(mine, i, theirs, j)):
            return _counted_apart(mine, i, theirs, j, more)
        i, j = i + 1, j + 1
    return None


def _counted_apart(mine: History, i: int, theirs: History, j: int, more: int) -> Divergence:
    """Where `mine` had made `more` of the same call before the records start. If it had made as
    many fewer of that transfer with another rank, one of these went to the wrong rank.
    """
    how: How = "skipped" if more < 0 else "extra"
    on = _other_way(mine, i, theirs, j, more)
    surplus, due = i, j
    if on:
        how = "other"
        surplus, due = (i, j + on) if more > 0 else (i + on, j)
    return Divergence(
        rank=mine.rank,
        reference=theirs.rank,
        how=how,
        mine=mine.operations[surplus],
        theirs=theirs.operations[due],
        position=surplus,
        before_records=True,
    )


def _other_way(mine: History, i: int, theirs: History, j: int, more: int) -> int:
    """How many calls further the same transfer with another rank is, of which `mine` had made as
    many fewer; 0 where there is none while the two go on alike.
    """
    role, name, hop = mine.tokens[i]
    limit = min(len(mine.tokens) - i, len(theirs.tokens) - j, LOOK_AHEAD)
    for on in range(1, limit if name in P2P_NAMES else 0):
        if not _same(mine, i + on, theirs, j + on, sites=False):
            break
        call = mine.tokens[i + on]
        other_rank = call[:2] == (role, name) and call[2] != hop
        if other_rank and _made_more(mine, i + on, theirs, j + on) == -more:
            return on
    return 0


def _made_more(mine: History, i: int, theirs: History, j: int) -> int:
    """How many more calls of that counter `mine` had made before the same call; 0 where it does not
    show.
    """
    if mine.operations[i].op not in P2P_NAMES:
        return mine.operations[i].seq - theirs.operations[j].seq
    if i not in mine.counts or j not in theirs.counts:
        return 0
    return mine.counts[i] - theirs.counts[j]


def _anchor(mine: History, theirs: History, shared: bool) -> tuple[int, int] | None:
    """Where both are in the same call of one group (`shared`), or of corresponding groups, by its
    number.
    """
    where = {theirs.number(j, shared): j for j in range(len(theirs.tokens) - 1, -1, -1)}
    for i in range(len(mine.tokens)):
        if mine.operations[i].op in P2P_NAMES:
            continue  # some recorders number these from the first one that is left
        j = where.get(mine.number(i, shared))
        if j is not None and theirs.tokens[j] == mine.tokens[i]:
            return (i, j)
    return None


def _how(mine: History, i: int, theirs: History, j: int, sites: bool) -> How:
    """What explains best how the two go on: the reading under which the most of the following calls
    are alike.
    """
    a, b = mine.operations[i], theirs.operations[j]
    same_role = mine.tokens[i][0] == theirs.tokens[j][0]
    same_collective = a.op == b.op and a.op not in P2P_NAMES
    if same_collective and not same_role and a.site == b.site and a.site:
        return "group"
    ahead = theirs.going_on()
    skipped = _alike(mine, i, ahead, j + 1, sites)
    extra = _alike(mine, i + 1, ahead, j, sites)
    other = _alike(mine, i + 1, ahead, j + 1, sites)
    swapped = _swapped(mine, i, ahead, j, sites)
    if skipped > max(extra, other) and skipped >= swapped:
        return "skipped"
    if swapped > max(extra, other):
        return "swapped"
    if extra > other:
        return "skipped" if _meets_after_transfers(a, theirs, j) else "extra"
    if a.site != b.site and _left_out_several(mine, i, theirs, j):
        return "skipped"
    if same_role:
        return "other"
    if _is_made_later(mine, i, theirs, j):
        return "skipped"
    if same_collective and a.shapes == b.shapes:
        return "group"
    if skipped or i + 1 < len(mine.tokens):
        return "skipped"  # an excess call would be followed by what the other one is in
    if _begins_again(mine, i):
        return "skipped"
    repeated = bool(a.site) and i > 0 and _same(mine, i, mine, i - 1, sites=True)
    return "extra" if repeated else "either"


def _begins_again(mine: History, i: int) -> bool:
    """Whether a call repeats the first of the run of calls at its line, and not the last, and the
    run before was as long: as the gradients of all parameters, one after the other. Then the next
    round of these has begun, without what comes between.
    """
    first = _run_begins(mine, i, i) if mine.operations[i].site else i
    shapes = [op.shapes for op in mine.operations[first : i + 1]]
    if len(shapes) <= _IN_A_ROW or not shapes[-1] or not shapes[-1] == shapes[0] != shapes[-2]:
        return False
    last = next((k for k in range(first - 1, -1, -1) if _same(mine, i, mine, k, sites=True)), -1)
    return last >= 0 and last + 1 - _run_begins(mine, i, last + 1) == i - first


def _run_begins(mine: History, i: int, end: int) -> int:
    """Where the calls alike `i` begin that end before record `end`."""
    while end > 0 and _same(mine, i, mine, end - 1, sites=True):
        end -= 1
    return end


def _left_out_several(mine: History, i: int, theirs: History, j: int) -> bool:
    """Whether two or more calls further on the other one has made what follows here, at the same
    lines: what lies between was left out.
    """
    if not (mine.operations[i].site and theirs.operations[j].site):
        return False
    limit = min(j + LOOK_AHEAD, len(theirs.tokens))
    return any(_alike(mine, i, theirs, k, sites=True) >= _IN_A_ROW for k in range(j + 2, limit))


def _meets_after_transfers(call: Operation, theirs: History, j: int) -> bool:
    """Whether the other one came to this very collective, which has ended, after sends or receives
    alone: it is none too many, and these were left out before it, as by a stage that runs fewer
    micro-batches.
    """
    left_out = theirs.operations[j].op in P2P_NAMES
    if call.op in P2P_NAMES or call.state != "done" or not left_out:
        return False
    for later in theirs.operations[j:]:
        if later.op not in P2P_NAMES:
            return (later.group, later.seq, later.op) == (call.group, call.seq, call.op)
    return False


def _is_made_later(mine: History, i: int, theirs: History, j: int) -> bool:
    """Whether the other one has made this very call, by its number and line, but others before it."""
    call = mine.operations[i]
    if call.op in P2P_NAMES or not call.site:
        return False
    number = mine.number(i, shared=True)
    later = range(j + 1, min(j + 1 + LOOK_AHEAD, len(theirs.tokens)))
    return any(
        theirs.number(k, shared=True) == number and _same(mine, i, theirs, k, sites=True)
        for k in later
    )


def _swapped(mine: History, i: int, theirs: History, j: int, sites: bool) -> int:
    """How many calls are the same if each has next what the other one has now."""
    if i + 1 >= len(mine.tokens) or j + 1 >= len(theirs.tokens):
        return 0
    crossed = _same(mine, i + 1, theirs, j, sites) and _same(mine, i, theirs, j + 1, sites)
    return 2 + _alike(mine, i + 2, theirs, j + 2, sites) if crossed else 0


def goes_on_alike(mine: History, i: int, theirs: History, j: int) -> bool:
    """Whether two histories are the same from these places on, as far as one looks ahead."""
    rest = min(len(mine.tokens) - i, len(theirs.tokens) - j, LOOK_AHEAD)
    return rest > 1 and _alike(mine, i, theirs, j, sites=False) >= rest - 1


def _alike(mine: History, i: int, theirs: History, j: int, sites: bool) -> int:
    """How many calls in a row are the same from there on."""
    count = 0
    limit = min(len(mine.tokens) - i, len(theirs.tokens) - j, LOOK_AHEAD)
    while count < limit and _same(mine, i + count, theirs, j + count, sites):
        count += 1
    return count


def _same(mine: History, i: int, theirs: History, j: int, sites: bool) -> bool:
    if mine.tokens[i] != theirs.tokens[j]:
        return False
    a, b = mine.operations[i].site, theirs.operations[j].site
    return not sites or a == b or not a or not b
