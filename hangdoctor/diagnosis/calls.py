"""The last Python calls of the culprit and of one healthy rank, and the first place where they
part. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from ..model.calls import CallTrace, Event, Function
from ..model.diagnosis import CallsOf, CallsParting
from ..text.repeats import folded
from .call_alignment import Parting, Step, Steps, last_met, last_place, open_calls, part
from .call_callers import by_callers
from .case import Case
from .draft import Draft
from .findings import Clue, Finding, Quoted
from .view import RankView
from .wording import calls as wording
from .wording.terms import long_frame

Happened = tuple[str, Function]
_SHOWN = 6  # calls after the parting that are shown of each rank
_ENDS = {"return": "ran", "exception": "failed"}  # of a call that was seen to begin
_TOGETHER_S = 1.0  # between the beginnings of two traces that were asked for at once


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
    found = _parting(culprit, theirs, peer, others)
    if found is None:
        return _unaligned(culprit, theirs, peer, others)
    a, b, common = found.a, found.b, 0
    while common < min(a, b) and theirs[a - 1 - common][0] == others[b - 1 - common][0]:
        common += 1
    of_culprit = _shown(culprit, _since(theirs, a, common))
    of_peer = _shown(peer, _since(others, b, common)) if peer is not None else None
    alike = wording.step(*theirs[a - 1][0][:2]) if common else ""
    says = wording.parting(of_culprit, of_peer, alike, since)
    return CallsParting(says, of_culprit, of_peer, common, alike=alike, since=since)


def _parting(
    culprit: RankView, theirs: Steps, peer: RankView | None, others: Steps
) -> Parting | None:
    """Where the two part; None where nothing shows which rounds of a loop belong together."""
    if peer is None:
        return Parting(0, 0)
    met = last_met(theirs, culprit.capture.ops, others, peer.capture.ops)
    found = part(theirs, others, met)
    if found.sure:
        return found
    mine_s = _age_s(culprit, theirs[found.a - 1][1])
    theirs_s = _age_s(peer, others[found.b - 1][1])
    round_s = max(_round_s(theirs, found.a - 1), _round_s(others, found.b - 1))
    apart = round_s > 0 and abs(mine_s - theirs_s) > max(_TOGETHER_S, round_s / 2)
    return None if apart else found


def _round_s(steps: Steps, place: int) -> float:
    """Seconds between a step and the same step before it; 0 where it is the first."""
    step, event = steps[place]
    before = last_place([s for s, _ in steps[:place]], step)
    return (event.at_ns - steps[before][1].at_ns) / 1e9 if before is not None else 0.0


def _unaligned(
    culprit: RankView, theirs: Steps, peer: RankView | None, others: Steps
) -> CallsParting:
    """The last steps of both, without a word on what they did together."""
    mine = _shown(culprit, theirs[-_SHOWN:])
    of_peer = _shown(peer, others[-_SHOWN:]) if peer is not None else None
    return CallsParting(wording.unaligned(mine, of_peer), mine, of_peer)


def _in_both(culprit: RankView, peer: RankView | None) -> tuple[Steps, Steps, str]:
    """The steps of both, of the one that was traced for longer only since the other was; and that
    moment in words, "" where they began together.
    """
    theirs, others = by_callers(_steps(culprit), _steps(peer) if peer is not None else [])
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


def thread_events(trace: CallTrace, tid: int) -> list[Event]:
    """The events of one thread since tracing was switched on last."""
    events: list[Event] = []
    for event in trace.events:
        if event.kind == "begin":
            events.clear()
        elif trace.threads[event.thread].tid == tid:
            events.append(event)
    return events


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
        steps.append(((kind, trace.functions[event.function], ()), timed))
    return steps


def _shown(view: RankView, steps: Steps) -> CallsOf:
    trace = view.capture.calls
    assert trace is not None
    every = [e for _, e in _steps(view)]
    inside = [long_frame(trace.functions[e.function]) for e in open_calls(every)]
    age = round(max(0.0, trace.read_s - every[-1].at_ns / 1e9), 1) if every else -1.0
    rounds = folded(
        [wording.step(*step) for step in _briefly([s[:2] for s, _ in steps])], longest=1
    )
    said = [wording.times(block[0], number) for block, number in rounds]
    if len(said) > _SHOWN:
        said = [*said[: _SHOWN - 2], f"... {len(said) - _SHOWN + 1} more ...", said[-1]]
    return CallsOf(view.rank, said, inside, age)


def _briefly(steps: Sequence[Happened]) -> list[Happened]:
    """Calls that have come back, or were left by an exception, are one step each, without what they
    called.
    """
    brief: list[Happened] = []
    for kind, function in steps:
        begun = last_place(brief, ("call", function)) if kind in _ENDS else None
        if begun is not None:
            brief[begun:] = [(_ENDS[kind], function)]
        else:
            brief.append((kind, function))
    return brief
