"""Pass: all ranks go on, one was at work in all samples, and the others mostly slept in their waits: it is
slow.

Here a rank that waits has its turns of work between: a garbage collection of a second on one rank, after
a step of a few milliseconds on all. In a healthy job, too, a rank may be found at work in each sample by
chance; how likely that is follows from how often the others were found waiting. Their turns come at one
moment, so that CPU times count too: the others use next to none.
"""

from __future__ import annotations

from msgspec import Struct

from ..model.capture import ThreadSample
from ..stacks.place_search import find_place, is_communication, python_frames
from . import findings as f
from . import own_loops
from .case import Case, finding_on, frame_of, ranks_of, stack_clue
from .confidence import Ground, sure
from .draft import Draft
from .findings import Clue, Finding
from .held_by_work import ENOUGH, most_seen, samples_of, seconds_of, worked
from .own_samples import cpu_share, stacks_of
from .position import counters
from .view import RankView

_HALF = 0.5  # of the samples of each other rank, at least, in its waits
_MOSTLY = 0.6  # of those of all others
_CHANCE = 0.003  # that one of the ranks of a healthy job is found so
# Where CPU times show it, of all samples of the others:
_SOME = 0.3
_IDLE = 0.1  # of the time, on the CPU: at most, of each other rank
_TIMES_MORE = 5.0  # CPU time than any of these
_AT_LEAST = 0.25  # of the time, on the CPU, of the one at work


class _Alone(Struct):
    """The rank at work in all samples, the others, and the share of theirs that found them waiting."""

    working: RankView
    others: list[RankView]
    waited: float
    on_cpu: tuple[float, float] | None  # shares of the time: its own, and the most of the others


def run(case: Case, draft: Draft) -> None:
    """Name it, where nothing else is wrong with the job, and it is no chance."""
    if draft.status not in ("healthy", "unknown") or case.capture.over:
        return
    alone = _find(case)
    if alone is None or samples_of(case) < ENOUGH:
        return
    chance = len(case.alive) * (1 - alone.waited) ** samples_of(case)
    if alone.on_cpu is not None or chance <= _CHANCE:
        draft.status, draft.findings = "slow", [_finding(case, alone)]


def may_be(case: Case) -> bool:
    """Whether the samples look so, and are too few to conclude that."""
    return _find(case) is not None and 1 < samples_of(case) < ENOUGH


def _find(case: Case) -> _Alone | None:
    if case.gone or case.unseen or case.unread or len(case.alive) < 2:
        return None
    working = [view for view in case.alive if worked(view) and not own_loops.polls(view)]
    if len(working) != 1:
        return None
    others = [view for view in case.alive if view is not working[0]]
    shares = [_waited(view) for view in others]
    mean = sum(shares) / len(shares)
    on_cpu = _alone_on_cpu(working[0], others) if min(shares) > 0 and mean >= _SOME else None
    mostly = min(shares) >= _HALF and mean >= _MOSTLY
    if not (mostly or on_cpu is not None) or not any(map(_left_wait, others)):
        return None
    return _Alone(working[0], others, mean, on_cpu)


def _alone_on_cpu(working: RankView, others: list[RankView]) -> tuple[float, float] | None:
    """Its share of the time and the most of the others; None where ranks of one load may differ so."""
    own, most = cpu_share(working), max(map(cpu_share, others))
    return (own, most) if most <= _IDLE and own >= max(_AT_LEAST, _TIMES_MORE * most) else None


def _waited(view: RankView) -> float:
    """The share of samples that found it asleep in a collective or a backward; 0 of a stopped one."""
    seen = stacks_of(view)
    if not seen or view.stopped:
        return 0.0
    return sum(_sleeps_in_wait(thread) for thread in seen) / len(seen)


def _sleeps_in_wait(thread: ThreadSample) -> bool:
    """Not in a send or receive: of a pipeline, most stages wait most of the time."""
    return thread.state == "S" and find_place(thread.frames, blocked=True).kind == "collective"


def _left_wait(view: RankView) -> bool:
    """Whether a sample found it in a wait, and a later one elsewhere, or in the next turn of its loop: the
    rank at work came to that one, too.
    """
    seen = stacks_of(view)
    waits = [n for n, thread in enumerate(seen) if _sleeps_in_wait(thread)]
    if not waits:
        return False
    first = _at(seen[waits[0]])
    return any(_at(thread) != first for thread in seen[waits[0] + 1 :])


def _at(thread: ThreadSample) -> tuple[object, ...]:
    """Without the line of a communication library: it starts a collective on one and waits on another."""
    frames = python_frames(thread.frames)
    lines = [frame.line for frame in frames]
    if frames and is_communication(frames[0]):
        lines[0] = 0
    called = tuple((frame.name, frame.file) for frame in frames)
    return called, tuple(lines), counters(frames)


def _finding(case: Case, alone: _Alone) -> Finding:
    view = alone.working
    finding = finding_on(
        case,
        "slow",
        [view],
        f.SlowBySamples(samples_of(case), seconds_of(view), alone.waited, alone.on_cpu),
        confidence=sure(Ground.MOSTLY_WAITED_FOR),
    )
    finding.frame = most_seen(view) or frame_of(view)
    finding.waiters = None
    others = ranks_of(alone.others)
    waits = Clue("stack", others, f.WaitsIn(share=alone.waited))
    finding.clues = [stack_clue([view], view.path[-1].code), waits]
    return finding
