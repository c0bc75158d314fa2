"""The last Python calls of the culprit and of one healthy rank, and the first place where they
part. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import Match, SequenceMatcher

from msgspec.structs import replace

from ..model.calls import CallTrace, Event, Function
from ..model.diagnosis import CallsOf, CallsParting
from ..text.repeats import folded
from .case import Case
from .draft import Draft
from .findings import Clue, Finding, Quoted
from .view import RankView
from .wording import calls as wording
from .wording.terms import long_frame

_SHOWN = 6  # calls after the parting that are shown of each rank
# Events in a row that make two histories the same one: the longest of these that is found.
_ENOUGH = (8, 4, 2)
_TOGETHER_S = 1.0  # between the beginnings of two traces that were asked for at once
_RESUMED = 4  # events in a row after which two ranks count as together again
Step = tuple[str, Function]  # what happened ("call", "return", "exception") to which function
Steps = Sequence[tuple[Step, Event]]  # with the event, whose time is by the rank's own clock


def run(case: Case, draft: Draft) -> None:
    """The first finding's culprit beside a healthy rank, where the culprit was traced; evidence for
    the finding.
    """
    culprit = _culprit(case, draft.findings)
    if culprit is None:
        return
    peer = _peer(case, culprit, {r for c in draft.findings for r in c.ranks})
    draft.calls = compare(culprit, peer)
    ranks = (culprit.rank, peer.rank) if peer is not None else (culprit.rank,)
    draft.findings[0].clues.append(Clue("trace", ranks, Quoted(draft.calls.says)))


def _culprit(case: Case, findings: Sequence[Finding]) -> RankView | None:
    traced = {v.rank: v for v in case.views if _traced(v)}
    ranks = findings[0].ranks if findings else []
    return next((traced[r] for r in ranks if r in traced), None)


def _traced(view: RankView) -> bool:
    return view.capture.calls is not None and bool(view.capture.calls.events)


def _peer(case: Case, culprit: RankView, blamed: set[int]) -> RankView | None:
    """A rank that is not to blame: of the same role in another replica where the layout shows, else
    the nearest.
    """
    innocent = [v for v in case.views if v.rank not in blamed and not v.gone and not v.stopped]
    able = [v for v in innocent if _traced(v)]
    layout = case.capture.layout
    same = set(layout.same_role(culprit.rank)) if layout is not None else set()

    def distance(view: RankView) -> tuple[bool, int, int]:
        return (view.rank not in same, abs(view.rank - culprit.rank), view.rank)

    return min(able, key=distance, default=None)


def compare(culprit: RankView, peer: RankView | None) -> CallsParting:
    """Where the histories of two ranks part."""
    theirs, others, since = _in_both(culprit, peer)
    a, b = part(theirs, others)
    common = 0
    while common < min(a, b) and theirs[a - 1 - common][0] == others[b - 1 - common][0]:
        common += 1
    of_culprit = _shown(culprit, _since(theirs, a, common))
    of_peer = _shown(peer, _since(others, b, common)) if peer is not None else None
    alike = wording.step(*theirs[a - 1][0]) if common else ""
    says = wording.parting(of_culprit, of_peer, alike, since)
    return CallsParting(says, of_culprit, of_peer, common, alike=alike, since=since)


def _in_both(culprit: RankView, peer: RankView | None) -> tuple[Steps, Steps, str]:
    """The steps of both, of the one that was traced for longer only since the other was; and that
    moment in words, "" where they began together.
    """
    theirs = _steps(culprit)
    others = _steps(peer) if peer is not None else []
    if peer is None or not theirs or not others:
        return theirs, others, ""
    mine_s, theirs_s = _age_s(culprit, theirs[0][1]), _age_s(peer, others[0][1])
    if abs(mine_s - theirs_s) < _TOGETHER_S:
        return theirs, others, ""
    later = culprit if mine_s < theirs_s else peer
    since = wording.since(min(mine_s, theirs_s), later.rank)
    return _newer(culprit, theirs, theirs_s), _newer(peer, others, mine_s), since


def _age_s(view: RankView, event: Event) -> float:
    """How long before its capture that was: ages compare between ranks, their clocks may not."""
    assert view.capture.calls is not None
    return view.capture.calls.read_s - event.at_ns / 1e9


def _newer(view: RankView, steps: Steps, age_s: float) -> Steps:
    """The steps of the last `age_s` seconds, after the calls that it was in before them."""
    first = next((n for n, (_, e) in enumerate(steps) if _age_s(view, e) <= age_s), len(steps))
    inside = {id(event) for event in open_calls([event for _, event in steps[:first]])}
    return [step for step in steps[:first] if id(step[1]) in inside] + list(steps[first:])


def _since(steps: Steps, parted: int, common: int) -> Steps:
    """What a rank did since the two parted; its last steps where they have nothing in common."""
    return steps[parted:] if common else steps[-_SHOWN:]


def part(a: Steps, b: Steps) -> tuple[int, int]:
    """The places in two histories after which they differ for good; (0, 0) where they have nothing
    in common.

    Both ranks are at the end inside some of the same calls. What they did since they entered the
    innermost one that they share is compared from its beginning, because the rounds of a loop
    around it cannot be distinguished. Where they share none, of all stretches that are the same in
    both the one that happened at the same time is taken.
    """
    shared = _shared_call(a, b)
    if shared is None:
        return _same_time(a, b)
    i, j = shared[0] + 1, shared[1] + 1
    blocks = [m for m in _matches(a[i:], b[j:]) if _resumes(m)]
    if not blocks:
        return i, j
    last = blocks[-1]
    return i + last.a + last.size, j + last.b + last.size


def _matches(a: Steps, b: Steps) -> list[Match]:
    """The stretches that are the same in both, in order.

    Of equal rounds the last ones are taken: of two histories the ends belong together, where one
    reaches back further.
    """
    back_a, back_b = [s for s, _ in reversed(a)], [s for s, _ in reversed(b)]
    found = SequenceMatcher(None, back_a, back_b, autojunk=False).get_matching_blocks()
    blocks = [Match(len(a) - m.a - m.size, len(b) - m.b - m.size, m.size) for m in found if m.size]
    return blocks[::-1]


def _resumes(block: Match) -> bool:
    """Whether both ranks do the same again there: long enough, or from the very beginning."""
    return block.size >= _RESUMED or (block.size > 0 and not block.a and not block.b)


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


def _same_time(a: Steps, b: Steps) -> tuple[int, int]:
    """The ends, nearest in time, of a stretch that is the same in both; (0, 0) where none is long
    enough.
    """
    ends = _common_stretches(a, b)
    for enough in _ENOUGH:
        long = [
            (abs(a[i - 1][1].at_ns - b[j - 1][1].at_ns), -run, i, j)
            for run, i, j in ends
            if run >= enough
        ]
        if long:
            _, _, i, j = min(long)
            return i, j
    return 0, 0


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


def thread_events(trace: CallTrace, tid: int) -> list[Event]:
    """The events of one thread since tracing was switched on last."""
    events: list[Event] = []
    for event in trace.events:
        if event.kind == "begin":
            events.clear()
        elif trace.threads[event.thread].tid == tid:
            events.append(event)
    return events


def open_calls(events: Sequence[Event]) -> list[Event]:
    """Calls that have not returned, outermost first: where the thread is, as far as it was
    recorded.
    """
    stack: list[Event] = []
    for event in events:
        if event.kind in ("call", "open"):
            stack.append(event)
            continue
        place = _last_place([inside.function for inside in stack], event.function)
        if place is not None:
            del stack[place:]
    return stack


def _last_place(things: Sequence[object], wanted: object) -> int | None:
    """The place of the last of `things` that equals `wanted`."""
    for place in range(len(things) - 1, -1, -1):
        if things[place] == wanted:
            return place
    return None


def main_tid(trace: CallTrace) -> int:
    """The main thread's id is the process's; a thread of that number or name, else the busiest."""
    for thread in trace.threads:
        if thread.tid == trace.pid or thread.name == "MainThread":
            return thread.tid
    if not trace.events:
        return trace.pid
    counts = Counter(trace.threads[event.thread].tid for event in trace.events)
    return max(counts, key=lambda tid: (counts[tid], tid))


def _steps(view: RankView) -> Steps:
    trace = view.capture.calls
    assert trace is not None
    wanted = view.thread.tid if view.thread is not None else main_tid(trace)
    events = thread_events(trace, wanted) or thread_events(trace, main_tid(trace))
    steps: list[tuple[Step, Event]] = []
    for event in events:
        kind = "call" if event.kind == "open" else event.kind
        timed = replace(event, at_ns=event.at_ns + trace.base_ns)
        steps.append(((kind, trace.functions[event.function]), timed))
    return steps


def _shown(view: RankView, steps: Steps) -> CallsOf:
    trace = view.capture.calls
    assert trace is not None
    every = [e for _, e in _steps(view)]
    inside = [long_frame(trace.functions[e.function]) for e in open_calls(every)]
    age = round(max(0.0, trace.read_s - every[-1].at_ns / 1e9), 1) if every else -1.0
    rounds = folded([wording.step(*step) for step in _briefly([s for s, _ in steps])], longest=1)
    said = [wording.times(block[0], number) for block, number in rounds]
    if len(said) > _SHOWN:
        said = [*said[: _SHOWN - 2], f"... {len(said) - _SHOWN + 1} more ...", said[-1]]
    return CallsOf(view.rank, said, inside, age)


def _briefly(steps: Sequence[Step]) -> list[Step]:
    """Calls that have come back are one step each, without what they called."""
    brief: list[Step] = []
    for kind, function in steps:
        begun = _last_place(brief, ("call", function)) if kind == "return" else None
        if begun is not None:
            brief[begun:] = [("ran", function)]
        else:
            brief.append((kind, function))
    return brief
