"""Pass: the job goes on, and one rank comes last to its collectives again and again: it is slow; or several do,
together.

What the last one comes later than the last but one is time that all others wait. Only times of one
host are compared: those of two may be further apart than what is looked for. Where ranks share no
collective of all, those of their groups are read (`arrivals_in_groups`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from ..model.operations import P2P, STORE, Operation
from . import arrivals_in_groups
from .case import Case, finding_on, stack_clue
from .confidence import Ground, sure
from .draft import Draft
from .findings import Clue, Finding, Pace, SlowByArrival, SlowByWaiting
from .findings.log_remaining import Undecided
from .late_together import late_together
from .ops.moved import moved
from .view import RankView

_LOOKED_BACK = 24  # collectives that all ranks have entered, at least
_LONG_S = 3.0  # and all of this time: within less, a loaded machine may have left one rank waiting for a core
_TURNS = 6  # and so many turns of the job, where these take long
_SHORTEST_S = 1.0
_RECENT = 256  # operations of a rank
_ENOUGH = 5
_SHARE = 0.25  # of the time between the first and the last of them
_TIMES_MORE = 4.0  # than all other ranks together
_FEWEST = 3  # ranks: of two, one is always last
_NOTICED_S = 0.01  # late: less is how a machine shares its cores
_OFTEN = 3  # times that it is late: once may be the start, or a checkpoint

_BEATS_S = 2.5  # two heartbeats
_WENT_ON = (Undecided.FROM_OUTSIDE, Undecided.CUT_OFF)

Times = dict[int, float]  # when each rank entered one collective


def run(case: Case, draft: Draft) -> None:
    """Name it, where nothing else is wrong with the job, or was until it ended."""
    if draft.status not in ("healthy", "unknown") or not (_runs(case) or _went_on(draft)):
        return
    found = _find(case)
    if found is not None:
        draft.status, draft.findings = "slow", [found]


def _runs(case: Case) -> bool:
    return not case.capture.over and any(map(_goes_on, case.alive))


def _went_on(draft: Draft) -> bool:
    """Whether all ranks of an ended job had progressed until then."""
    return draft.remaining is not None and draft.remaining.reason in _WENT_ON


def _lasted(case: Case, last: Sequence[float]) -> bool:
    """Whether the collectives reach to the end of the job, by the pauses between these times."""
    ends = [view.capture.ops.heartbeat_s for view in case.alive if view.capture.ops is not None]
    return max(ends, default=0.0) - last[-1] <= max(_BEATS_S, 2 * _longest_pause(last))


def _longest_pause(times: Sequence[float]) -> float:
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


def _find(case: Case) -> Finding | None:
    if case.gone or case.unseen or len(case.alive) < _FEWEST:
        return None
    if len({view.node for view in case.alive}) != 1:
        return None
    if any(map(_passes_on, case.alive)):
        return None  # the stages of a pipeline come to the end of a step in its order
    together = _entered_by_all(case)
    return _last_of_all(case, together) if len(together) >= _ENOUGH else _in_groups(case)


def _in_groups(case: Case) -> Finding | None:
    """Where ranks share no collective of all."""
    calls = {view.rank: _collectives(view) for view in case.alive}
    members = {
        group.uid: group.ranks
        for view in case.alive
        for ops in (view.capture.ops, view.capture.recorded)
        for group in (ops.groups if ops is not None else ())
    }
    found = arrivals_in_groups.find(calls, members)
    if found is None or (case.capture.over and not _lasted(case, [found.until])):
        return None
    return _finding(case, [found.rank], SlowByWaiting(found.waited, found.others))


def _last_of_all(case: Case, entered: list[Times]) -> Finding | None:
    together = _latest(entered)
    late: dict[int, list[float]] = defaultdict(list)
    for times in together:
        *_, before, last = sorted(times, key=lambda rank: times[rank])
        late[last].append(times[last] - times[before])
    if case.capture.over and not _lasted(case, [max(times.values()) for times in together]):
        return None
    lost = {rank: sum(seconds) for rank, seconds in late.items()}
    slowest = max(lost, key=lambda rank: lost[rank])
    rest = sum(lost.values()) - lost[slowest]
    span = max(together[-1].values()) - max(together[0].values())
    if span < _SHORTEST_S:
        return None
    if lost[slowest] < max(_SHARE * span, _TIMES_MORE * rest):
        return _several(case, together, span)
    # Of several collectives of one step it is late to the first alone.
    by = [seconds for seconds in late[slowest] if 2 * seconds >= max(late[slowest])]
    if len(by) < _OFTEN or median(by) < _NOTICED_S:
        return None
    return _finding(case, [slowest], SlowByArrival(median(by), min(lost[slowest] / span, 1.0)))


def _several(case: Case, together: Sequence[Times], span: float) -> Finding | None:
    """Ranks that come late together, where no one rank is the last."""
    found = late_together(together)
    if found is None or found.lost < _SHARE * span or len(found.ranks) >= len(case.alive):
        return None
    by = [seconds for seconds in found.by if 2 * seconds >= max(found.by)]
    if len(by) < _OFTEN:
        return None
    return _finding(case, found.ranks, SlowByArrival(median(by), min(found.lost / span, 1.0)))


def _latest(together: list[Times]) -> list[Times]:
    last = [max(times.values()) for times in together]
    seconds = max(_LONG_S, _TURNS * _longest_pause(last[-_LOOKED_BACK:]))
    recent = sum(at >= last[-1] - seconds for at in last)
    return together[-max(_LOOKED_BACK, recent) :]


def _finding(case: Case, ranks: Sequence[int], story: SlowByArrival | SlowByWaiting) -> Finding:
    views = [view for view in case.alive if view.rank in ranks]
    by_arrival = isinstance(story, SlowByArrival)
    ground = Ground.SLOW_BY_ARRIVAL if by_arrival else Ground.SLOW_BY_WAITING
    finding = finding_on(case, "slow", views, story, confidence=sure(ground))
    finding.waiters = None
    finding.clues = [Clue("ops", tuple(ranks), Pace(story))]
    if views[0].path and not views[0].place.communicates:
        finding.clues.append(stack_clue(views, views[0].path[-1].code))
    return finding


def _goes_on(view: RankView) -> bool:
    """Whether its records have grown between the samples: where a job hangs, earlier steps say nothing."""
    own = view.capture
    pairs = ((own.ops_before, own.ops), (own.recorded_before, own.recorded))
    return any(a is not None and b is not None and moved(a, b) for a, b in pairs)


def _passes_on(view: RankView) -> bool:
    """Whether its last records have sends or receives."""
    own = view.capture
    both = [ops.operations[-_RECENT:] for ops in (own.ops, own.recorded) if ops is not None]
    return any(op.op in P2P for some in both for op in some)


def _entered_by_all(case: Case) -> list[Times]:
    """The collectives that all ranks have entered, in their order."""
    found: dict[tuple[str, int], Times] = defaultdict(dict)
    for view in case.alive:
        for op in _collectives(view):
            found[op.group, op.seq].setdefault(view.rank, op.entered_s)
    whole = [times for times in found.values() if len(times) == len(case.alive)]
    return sorted(whole, key=lambda times: max(times.values()))


def _collectives(view: RankView) -> Sequence[Operation]:
    """Those of the black box; of a job that calls none itself, those that torch's recorder has."""
    for ops in (view.capture.ops, view.capture.recorded):
        calls = ops.operations if ops is not None else ()
        timed = [o for o in calls if o.entered_s > 0 and o.op not in P2P and o.op not in STORE]
        if len(timed) >= _ENOUGH:
            return timed
    return ()
