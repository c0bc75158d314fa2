"""Ends that came over many processes at once, beside an error that one of them had printed before."""

from __future__ import annotations

from collections.abc import Sequence

from ...model.log_ends import SENT
from ...model.log_facts import (
    AnyFact,
    Cancelled,
    Ended,
    Guarded,
    KilledByLauncher,
    KnownError,
    OomKill,
    PeerClosed,
    PythonError,
    Signalled,
    ThreadStack,
    TimedOut,
)
from .scene import Scene, ranks_named

_SWEEP = frozenset({-9, -15})
_ABORT = -6
_LATER_S = 2.0  # after an end, by the clock of another launcher
_CLEARLY_S = 10.0  # between two ends, whatever clocks and launchers do in between
_FEW, _MANY_TIMES = 3, 4  # tasks that are missing in a list, and how many more it has
_COMMUNICATES = ("torch/distributed/", "deepspeed/comm/", "c10d")


def is_sweep(scene: Scene, error: PythonError | KnownError) -> bool:
    """Whether all tasks that srun speaks of were killed after this error, and nothing says that one
    of them had run out of memory: then something outside swept them away.
    """
    ends = [f for f in scene.of(Ended) if f.by.startswith("slurm")]
    several = len({f.task for f in ends}) > 1
    killed = all(f.code in _SWEEP and "memory" not in f.by for f in ends)
    after = all(f.file == error.file and f.line > error.line for f in ends)
    of_a_peer = isinstance(error, PythonError) and communicates(error)
    return several and killed and after and not scene.of(OomKill) and not of_a_peer


def communicates(error: PythonError) -> bool:
    """Whether it was raised in a call to other ranks: such an error may be their doing."""
    return any(part in frame.file for frame in error.frames[:3] for part in _COMMUNICATES)


def after_the_stop(scene: Scene, fact: Ended) -> bool:
    """Whether srun had said before that it ends the step: what it lists then is its own doing."""
    stops = [f for f in scene.of(KilledByLauncher) if f.signal == "srun"]
    return any((f.file, f.line) < (fact.file, fact.line) and f.file == fact.file for f in stops)


def with_those_that_failed_too(scene: Scene, ranks: Sequence[int]) -> list[Ended]:
    """Ends with an error code of ranks that left no word, before a rank that printed its own error
    could end: torchelastic, which had seen them, ended that one.
    """
    listed = [f for f in scene.of(Ended) if f.by == "torchelastic" and f.rank >= 0]
    failed = [f for f in listed if f.code > 0]
    stopped = {f.pid for f in scene.of(KilledByLauncher) if f.pid}
    nodes = {f.node for f in listed}
    here = len(nodes) == 1 and max(ranks, default=-1) < len({f.rank for f in failed}) + len(stopped)
    spoke = set(ranks_named(scene.of(PythonError)))
    if not here or {f.rank for f in failed} & {*ranks, *spoke} or not spoke <= set(ranks):
        return []
    return failed


def first_by_clock(scene: Scene) -> list[Ended]:
    """The ends with an error code that came long before all others, by the launchers' own clock."""
    ends = [f for f in scene.of(Ended) if f.by == "torchelastic" and f.rank >= 0 and f.at > 0]
    listed = {f.rank: f for f in ends}
    times = sorted({f.at for f in listed.values()})
    own = all(f.code > 0 for f in listed.values())
    if len(times) < 2 or not own or scene.first_wait < len(scene.facts):
        return []
    first = [f for f in listed.values() if f.at - times[0] < 1.0]
    rest = [f.at for f in listed.values() if f not in first]
    far = bool(rest) and min(rest) - times[0] >= _CLEARLY_S
    return first if far and len(first) <= len(rest) else []


def aborted_alone(scene: Scene, quiet: Sequence[Ended]) -> bool:
    """Whether one rank aborted without a word, no other is seen to fail, and a launcher stopped ranks
    that still ran well after that.
    """
    failed = [f for f in scene.of(Ended) if f.rank >= 0 and f.code not in (0, *_SWEEP)]
    ranks = {f.rank for f in failed}
    if len(quiet) != 1 or quiet[0].code != _ABORT or ranks != {quiet[0].rank} or scene.victims():
        return False
    end = quiet[0]
    stops = [f for f in scene.of(KilledByLauncher) if f.pid and f.pid != end.pid]
    return end.at > 0 and any(f.at - end.at >= _LATER_S for f in stops)


def exited_alone(scene: Scene, quiet: Sequence[Ended]) -> bool:
    """Whether one process of a torchrun exited with an error code, and all others that the log tells of
    still ran until it stopped them; nothing else failed, or waited in vain.
    """
    ends = [f for f in scene.of(Ended) if f.code not in (0, *_SWEEP)]
    if not ends or ends[0].code <= 0 or {f.by for f in ends} != {"torchelastic"}:
        return False
    if len({f.pid for f in ends}) > 1 or len({f.file for f in ends}) > 1:
        return False
    errors: list[KnownError | PythonError] = [*scene.of(KnownError), *scene.of(PythonError)]
    told = any(f.role != "launcher" for f in errors)
    waited = scene.first_wait < len(scene.facts)
    waited |= bool(scene.of(PeerClosed) or scene.of(Cancelled) or scene.of(Signalled))
    stopped = {f.pid for f in scene.of(KilledByLauncher) if f.pid}
    return bool(quiet) and not told and not waited and bool(stopped - {ends[0].pid})


def said_to_be_first(scene: Scene, quiet: Sequence[Ended]) -> list[Ended]:
    """The one end with an error code that a launcher says it saw first, or that is the only one which it
    lists, where nothing shows that it follows from another: no rank had waited to a limit by then, lost
    another one, or said anything else.
    """
    every = [f for f in scene.of(Ended) if f.code not in (0, *SENT)]
    by_torchrun = [f for f in every if f.by == "torchelastic"]
    ends = by_torchrun or [f for f in every if f.by == "slurm"]
    alone = len({(f.file, f.rank, f.task, f.pid) for f in ends}) == 1
    if not ends or not (alone or _seen_first(ends)):
        return []
    aborted = _aborted_before_its_stop(scene, ends) if by_torchrun else []
    first = aborted or [f for f in ends[:1] if f.code > 0]
    if not first or (by_torchrun and first[0] not in quiet):
        return []
    return [] if _led(scene, first[0]) else first


def _led(scene: Scene, end: Ended) -> bool:
    """Whether something before it may have led to this end."""
    others: list[AnyFact]
    others = [f for f in scene.facts if isinstance(f, Signalled | OomKill | Guarded | ThreadStack)]
    others += [f for f in scene.of(TimedOut) if (f.file, f.line) < (end.file, end.line)]
    return bool(others) or end.waited_s > 0 or bool(_words_before(scene, end))


def _aborted_before_its_stop(scene: Scene, ends: Sequence[Ended]) -> list[Ended]:
    """The one process that torchrun saw abort a second before all others of its table, some of which
    it then ended by SIGTERM.
    """
    first = min(ends, key=lambda f: f.at)
    stopped = [f for f in scene.of(Ended) if f.by == first.by and f.code in _SWEEP]
    seen = first.first and first.code == _ABORT and first.at > 0
    later = [f.at for f in [*stopped, *ends] if f is not first]
    return [first] if seen and stopped and min(later) - first.at >= 1.0 else []


def _words_before(scene: Scene, end: Ended) -> list[AnyFact]:
    """What a rank says of an error, or of another rank that it lost, and not clearly after this end."""
    errors: list[KnownError | PythonError] = [*scene.of(KnownError), *scene.of(PythonError)]
    said = [f for f in errors if f.role not in ("launcher", "note") and not f.survived]
    return [f for f in [*said, *scene.of(PeerClosed)] if not _is_after(f, end)]


def _is_after(fact: AnyFact, end: Ended) -> bool:
    return end.at > 0 and not fact.inherited and fact.at - end.at >= _CLEARLY_S


def aborted_before_the_sweep(scene: Scene) -> list[Ended]:
    """The tasks that srun first says have aborted, where it ended all others that it lists, nothing else
    is said, and nothing waited.
    """
    ends = [f for f in scene.of(Ended) if f.by == "slurm"]
    first = [f for f in ends if (f.file, f.line) == (ends[0].file, ends[0].line)]
    rest = [f for f in ends if f not in first]
    if not rest or {f.code for f in first} != {_ABORT}:
        return []
    swept = all(f.code in _SWEEP and after_the_stop(scene, f) for f in rest)
    waited = scene.first_wait < len(scene.facts)
    return [] if waited or not swept or _words_before(scene, first[0]) else first


def _seen_first(ends: Sequence[Ended]) -> bool:
    """Whether torchrun's clock has the first one before all others of its table."""
    first, *rest = sorted(ends, key=lambda f: f.at)
    later = [f.at for f in rest if f.rank != first.rank]
    return first.first and first.at > 0 and bool(later) and min(later) - first.at >= 1.0


def not_swept(scene: Scene) -> tuple[int, ...]:
    """The few tasks that are missing in srun's list of those that it ended, which goes beyond them: they had
    ended before, or could not be ended.
    """
    ends = [f for f in scene.of(Ended) if f.by.startswith("slurm") and f.task >= 0]
    swept = {f.task for f in ends if f.code in _SWEEP}
    others = set(range(max(swept, default=0))) - {f.task for f in ends}
    few = len(others) <= _FEW and _MANY_TIMES * len(others) <= len(swept)
    return tuple(sorted(others)) if few else ()


def of_one_node(scene: Scene, ends: Sequence[Ended]) -> list[Ended]:
    """The tasks that aborted, where all of them are of one node, and those of other nodes are only
    said to have been ended once srun ends the step.
    """
    aborted = [f for f in ends if f.code == _ABORT]
    others = [f for f in ends if f.code != _ABORT]
    nodes = {f.node for f in aborted}
    elsewhere = {f.node for f in others} - nodes
    stopped = [f for f in others if f.code in _SWEEP and after_the_stop(scene, f)]
    alone = len(nodes) == 1 and "" not in nodes and bool(elsewhere)
    return aborted if alone and len(stopped) == len(others) and not scene.victims() else []
