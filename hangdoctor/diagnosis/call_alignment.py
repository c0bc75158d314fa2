"""Which calls in the histories of two ranks belong together, and where the two part. Pure.

Rounds of a loop look alike, and two traces may begin in different places of it. The last operation
that both ranks have entered shows which rounds belong together, or a call that both were seen to
begin and are still in. Without either, the culprit's last round belongs to the other's last one that
is like it; the times may say that this cannot be.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from difflib import Match, SequenceMatcher

from msgspec import Struct

from ..model.calls import Event, Function
from ..model.operations import P2P, STORE, Operation, RankOps

Callers = tuple[Function, ...]  # of helpers that are called from several places, outermost first
# What happened ("call", "return", "exception") to which function, and within the calls of which.
Step = tuple[str, Function, Callers]
Steps = Sequence[tuple[Step, Event]]  # with the event, whose time is by the rank's own clock

_ENOUGH = 2  # steps in a row that may be more than chance
_SHARE = 3  # and not less than this part of the longest such stretch
_RESUMED = 4  # steps in a row after which two ranks count as together again
_NEAR = 2  # steps between an operation and the call that is recorded beside it
_MOST = 400  # steps of a history that are compared with each other


class Parting(Struct, frozen=True):
    """Places in two histories after which they differ for good; both 0 where they have nothing in
    common. `sure`: an operation or a call shows it.
    """

    a: int
    b: int
    sure: bool = True


def part(a: Steps, b: Steps, met: tuple[int, int] | None) -> Parting:
    """Where two histories part; `met` are the places after the last operation that both entered."""
    inside = _shared_call(a, b)
    shared = (inside[0] + 1, inside[1] + 1) if inside is not None else (0, 0)
    begun = inside is not None and "open" not in (a[inside[0]][1].kind, b[inside[1]][1].kind)
    start = shared if begun else None
    if met is not None and (start is None or not _in_one_round(a, b, met, start)):
        start = met
    if start is not None:
        i, j = start
        x, y = _after(a[i:], b[j:])
        return Parting(i + x, j + y)
    i, j = shared
    x, y = _latest(a[i:], b[j:])
    return Parting(i + x, j + y, sure=not (x or y))


def _in_one_round(a: Steps, b: Steps, met: tuple[int, int], call: tuple[int, int]) -> bool:
    """Whether both have made the call before the places `call` equally often since they met."""
    since_a = [step for step, _ in a[met[0] : call[0]]]
    since_b = [step for step, _ in b[met[1] : call[1]]]
    made = since_a.count(a[call[0] - 1][0])
    return made > 0 and made == since_b.count(b[call[1] - 1][0])


# ---------------------------------------------------------------------- operations


def last_met(
    a: Steps, of_a: RankOps | None, b: Steps, of_b: RankOps | None
) -> tuple[int, int] | None:
    """The places in two histories after the last collective that both ranks entered, None where
    neither shows one.
    """
    if not a or not b or of_a is None or of_b is None:
        return None
    theirs = {(o.group, o.seq): o for o in of_b.operations if _counts(of_b, o)}
    for mine in reversed(of_a.operations):
        other = theirs.get((mine.group, mine.seq))
        if not _counts(of_a, mine) or other is None or not _is_same(mine, other):
            continue
        places = _place(a, mine.entered_s), _place(b, other.entered_s)
        if min(places) > 0:
            return _beside(a, b, *places)
    return None


def _counts(ops: RankOps, one: Operation) -> bool:
    """Whether it is a collective of the training with a known beginning."""
    return one.op not in P2P | STORE and one.thread not in ops.side and one.entered_s > 0


def _is_same(mine: Operation, other: Operation) -> bool:
    """Whether two operations of one number are the same one of the program, too: a rank may have
    skipped one.
    """
    of_rounds = {mine.iteration, other.iteration} - {-1}
    return (mine.op, mine.site) == (other.op, other.site) and len(of_rounds) < 2


def _place(steps: Steps, at_s: float) -> int:
    return bisect_left(steps, at_s * 1e9, key=lambda step: step[1].at_ns)


def _beside(a: Steps, b: Steps, i: int, j: int) -> tuple[int, int]:
    """The places after the same step, where one lies within a step or two: the call and its operation
    are dated by two clocks.
    """
    near = range(-_NEAR, _NEAR + 1)
    around = [
        (abs(x) + abs(y), i + x, j + y)
        for x in near
        for y in near
        if 0 < i + x <= len(a) and 0 < j + y <= len(b) and a[i + x - 1][0] == b[j + y - 1][0]
    ]
    _, i, j = min(around, default=(0, i, j))
    return i, j


# ---------------------------------------------------------------------- calls


def _after(a: Steps, b: Steps) -> tuple[int, int]:
    """Where two histories part that begin at one point of the program: after what is the same from
    there on, or after they came together again for a while.
    """
    same = 0
    while same < min(len(a), len(b)) and a[same][0] == b[same][0]:
        same += 1
    again = [m for m in _matches(a[same:], b[same:]) if m.size >= _RESUMED]
    if not again:
        return same, same
    last = again[-1]
    return same + last.a + last.size, same + last.b + last.size


def _matches(a: Steps, b: Steps) -> list[Match]:
    """The stretches that are the same in both, in order; of equal ones the last are taken."""
    back_a, back_b = [s for s, _ in reversed(a)], [s for s, _ in reversed(b)]
    found = SequenceMatcher(None, back_a, back_b, autojunk=False).get_matching_blocks()
    blocks = [Match(len(a) - m.a - m.size, len(b) - m.b - m.size, m.size) for m in found if m.size]
    return blocks[::-1]


def _latest(a: Steps, b: Steps) -> tuple[int, int]:
    """The ends of the stretch that is the same in both and is the last of the first one; (0, 0)
    where none is long enough.

    Not the longest: of two traces of a loop, the longest one may put a round of the one beside the
    round before of the other.
    """
    off_a, off_b = max(0, len(a) - _MOST), max(0, len(b) - _MOST)
    stretches = _common_stretches(a[off_a:], b[off_b:])
    longest = max((run for run, _, _ in stretches), default=0)
    long = [(i, j) for run, i, j in stretches if run >= max(_ENOUGH, longest / _SHARE)]
    i, j = max(long, default=(-off_a, -off_b))
    return off_a + i, off_b + j


def _common_stretches(a: Steps, b: Steps) -> list[tuple[int, int, int]]:
    """(length, end in `a`, end in `b`) of all stretches of steps that are the same in both."""
    found: list[tuple[int, int, int]] = []
    before = [0] * (len(b) + 1)
    for i in range(1, len(a) + 1):
        row = [0] * (len(b) + 1)
        for j in range(1, len(b) + 1):
            if a[i - 1][0] != b[j - 1][0]:
                continue
            row[j] = before[j - 1] + 1
            at_end = i == len(a) or j == len(b)
            if at_end or a[i][0] != b[j][0]:
                found.append((row[j], i, j))
        before = row
    return found


def _shared_call(a: Steps, b: Steps) -> tuple[int, int] | None:
    """The innermost call that both histories are still in, as places of the two; the calls around
    it agree too.
    """
    mine, theirs = _open_places(a), _open_places(b)
    for x in range(len(mine) - 1, -1, -1):
        for y in range(len(theirs) - 1, -1, -1):
            outermost = x == 0 or y == 0
            around = outermost or a[mine[x - 1]][0] == b[theirs[y - 1]][0]
            if around and a[mine[x]][0] == b[theirs[y]][0]:
                return mine[x], theirs[y]
    return None


def _open_places(steps: Steps) -> list[int]:
    """Places of the calls in a history that have not returned."""
    opened = open_calls([event for _, event in steps])
    return [place for place, (_, event) in enumerate(steps) if event in opened]


def open_calls(events: Sequence[Event]) -> list[Event]:
    """Calls that have not returned, outermost first: where the thread is, as far as it was
    recorded.
    """
    stack: list[Event] = []
    for event in events:
        if event.kind in ("call", "open"):
            stack.append(event)
            continue
        place = last_place([inside.function for inside in stack], event.function)
        if place is not None:
            del stack[place:]
    return stack


def last_place(things: Sequence[object], wanted: object) -> int | None:
    """The place of the last of `things` that equals `wanted`."""
    for place in range(len(things) - 1, -1, -1):
        if things[place] == wanted:
            return place
    return None
