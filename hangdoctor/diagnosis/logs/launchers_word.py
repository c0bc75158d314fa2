"""The rank that a launcher says it saw fail, where nothing else in the logs decides.

What it sees first is often a victim, so that this is asked last and its confidence is low. A signal
that launchers, schedulers and people send is no word on the rank that got it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...model.log_ends import SENT
from ...model.log_facts import Ended, PythonError
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_remaining import LogRemaining, Undecided
from ..findings.log_stories import LoggedDeath
from ..findings.named import End
from .also_cut import with_cut_rows
from .candidate import First, someone
from .scene import Scene, ranks_named

_ABORT = -6
_ONE_MOMENT_S = 1.0
_CLEARLY_S = 10.0  # between two ends by the clocks of two launchers
# What torchrun raises where another one has closed the rendezvous
_CAME_LATE = frozenset({"RendezvousClosedError", "RendezvousGracefulExitError"})
_NAMES = {"torchelastic": "torchrun", "slurm": "srun"}


def by_the_launcher(scene: Scene, why: LogRemaining) -> First | None:
    """Who failed first as torchrun or srun saw it; all that failed alike at that moment."""
    if why.reason is not Undecided.ABORTS_ONLY or scene.source != "log":
        return None
    if any(f.error in _CAME_LATE for f in scene.of(PythonError)):
        return None  # the task was such a launcher, and the job had ended before
    for launcher, name in _NAMES.items():
        ends = [f for f in scene.of(Ended) if f.by == launcher and f.code]
        named = [f for f in ends if f.rank >= 0 and f.code not in SENT]
        first = _first_seen(named) if launcher == "torchelastic" else _first_of_steps(named, ends)
        if first and not _may_be_a_watchdogs(first):
            return _failed(scene, first, by=name)
    return None


def _first_seen(ends: Sequence[Ended]) -> list[Ended]:
    """torchrun's "first observed failure", and those that failed alike in that second; of several launchers
    each one's, where their clocks do not clearly part them.
    """
    seen = [f for f in ends if f.first] or list(ends)
    if not seen:
        return []
    first = min(seen, key=lambda f: f.at)
    near = [f for f in seen if f.at - first.at < _CLEARLY_S]
    alike = [f for f in ends if any(_at_one_moment(one, f) for one in near)]
    return [f for f in alike if f.code == first.code]


def _at_one_moment(one: Ended, other: Ended) -> bool:
    if one is other or one.at <= 0 or other.at <= 0:
        return True
    return abs(one.at - other.at) <= _ONE_MOMENT_S


def _first_of_steps(ends: Sequence[Ended], all_ends: Sequence[Ended]) -> list[Ended]:
    """The first line of each step that srun prints: it has the tasks in the order in which they ended."""
    first: list[Ended] = []
    for file in {f.file for f in all_ends}:
        own = [f for f in all_ends if f.file == file]
        line = min(f.line for f in own)
        first += [f for f in ends if (f.file, f.line) == (file, line)]
    first.sort(key=lambda f: (f.file, f.line, f.rank))
    return [f for f in first if f.code == first[0].code]


def _may_be_a_watchdogs(ends: Sequence[Ended]) -> bool:
    """Whether several of one run aborted: mostly their watchdogs did it, after a wait."""
    files = {f.file for f in ends}
    return ends[0].code == _ABORT and len(ranks_named(ends)) > len(files)


def _failed(scene: Scene, ends: Sequence[Ended], by: str) -> First:
    first = next((f for f in ends if f.first), ends[0])
    ranks = ranks_named(ends)
    story = LoggedDeath(End(first.code), someone(first), alone=True, by=by)
    nodes = scene.places(ranks, ends)
    finding = Finding("dead", ranks, story, sure(Ground.LOG_ABORTED_ALONE), nodes=nodes)
    found = First(finding, [first, *(f for f in ends if f is not first)], bool(ranks))
    return with_cut_rows(scene, first, found)
