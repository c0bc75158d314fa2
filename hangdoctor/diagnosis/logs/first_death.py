"""The first process that was killed or exited, and not because another one had ended."""

from __future__ import annotations

from ...model.log_ends import CRASH_CODES
from ...model.log_facts import EXIT_LIST, HYDRA, MPI_ABORT, CutEnd, Ended, OomKill, PythonError
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_stories import LoggedDeath
from ..findings.named import End
from .also_cut import with_cut_rows
from .candidate import First, one_place, someone
from .ends import after_first_wait, by_step, was_seen
from .first_exit import failed_pod, silent_exit
from .scene import Scene, ranks_named
from .swept import after_the_stop

_ABORT = -6
_FATAL = frozenset({-4, -7, -8, -9, -11})  # not SIGABRT and SIGTERM: those are mostly others' doing
_OF_PROCESSES = (HYDRA, "dask")  # they name the process, and mostly no rank
_LIVED_ON_S = 5.0  # more than one command takes for all
_KILLED = frozenset({-9, -15})  # as a launcher ends processes, too


def first_death(scene: Scene) -> First | None:
    """The first process that was killed or exited by itself, with those that ended at the same moment."""
    deaths = [f for f in scene.of(Ended) if _is_own_death(scene, f)]
    kills = scene.of(OomKill)
    if not deaths:
        if kills:
            return _killed_for_memory(scene, kills)
        return silent_exit(scene) or failed_pod(scene)
    deaths.sort(key=lambda f: (not f.first, max(0.0, f.at)))
    first = deaths[0]
    by_print = _name_silent(scene, first)
    alike = [f for f in deaths if _together(scene, first, f)]
    alike += _crashed_alike(scene, first, alike)
    if _gave_up_on_one(scene, alike):
        return None
    ranks = ranks_named(alike)
    nodes = scene.places(ranks, alike)
    memory = (bool(kills) and first.code == -9) or "memory" in first.by
    story = LoggedDeath(End(first.code, int(memory)), someone(first), memory, left=first.left)
    known = bool(ranks or nodes or (first.pid and first.by in _OF_PROCESSES))
    ground = Ground.LOG_DEATH if ranks else Ground.LOG_DEATH_SOMEONE
    ground = Ground.LOG_LEFT if by_print else ground
    finding = Finding("dead", ranks, story, sure(ground), nodes=nodes, frame=one_place(alike))
    return with_cut_rows(scene, first, First(finding, [*alike, *kills], known))


def _gave_up_on_one(scene: Scene, alike: list[Ended]) -> bool:
    """Whether all ranks but one aborted themselves at one moment, without a word and without a place: so does
    a library that has waited for the other one up to its limit.
    """
    if any(f.code != _ABORT or f.place is not None for f in alike) or scene.of(PythonError):
        return False
    ranks = {f.rank for f in alike}
    return len(ranks) > 1 and -1 not in ranks and len(ranks) == len(scene.everyone) - 1


def _name_silent(scene: Scene, death: Ended) -> bool:
    """A death without a name is that of the only rank which is not among the victims; whether the
    program's own lines alone show how many ranks there are.
    """
    spoke = {line.rank for line in scene.printed if line.rank >= 0}
    listed = len(spoke) > 2 and spoke == set(range(len(spoke)))  # by the program's own numbers
    everyone = set(scene.everyone) | spoke
    if death.rank >= 0 or not (scene.whole or (listed and everyone == spoke)):
        return False
    others = everyone - {f.rank for f in scene.victims()}
    if len(others) == 1 and len(everyone) > 1:
        [death.rank] = others
    return not scene.whole


def _together(scene: Scene, first: Ended, other: Ended) -> bool:
    """Ends of one kind at one moment: which came first does not show."""
    if other is first:
        return True
    at, its = _moment(scene, first), _moment(scene, other)
    dated = its > 0 and abs(its - at) < 1.0
    told = (at > 0 and not first.inherited, its > 0 and not other.inherited)
    undated = not any(told) and min(at, its) <= 0 and first.code in CRASH_CODES
    return other.code == first.code and (dated or undated or other.line == first.line)


def _moment(scene: Scene, end: Ended) -> float:
    """When it ended, by another line on the same process where its own has no time; 0 unknown."""
    if end.at > 0 or not end.pid:
        return end.at
    same = [f for f in scene.of(Ended) if (f.pid, f.code, f.file) == (end.pid, end.code, end.file)]
    return max((f.at for f in same), default=0.0)


def _crashed_alike(scene: Scene, first: Ended, alike: list[Ended]) -> list[Ended]:
    """Those that torchelastic told to end, and that had crashed as the first one did, at its moment: SIGTERM
    is not what ended them.
    """
    if first.by != "torchelastic" or first.code not in CRASH_CODES or first.rank < 0:
        return []
    ends = [f for f in scene.of(Ended) if f.by == "torchelastic" and f.pid in scene.told_to_end()]
    known = {f.rank for f in alike}
    return [f for f in ends if f.rank >= 0 and f.rank not in known and _together(scene, first, f)]


def _is_own_death(scene: Scene, fact: Ended) -> bool:
    """Killed, and not by the launcher, nor in the abort after a time-out."""
    if fact.by == EXIT_LIST:
        return _all_others_lost_it(scene, fact)
    if fact.by == HYDRA and _swept_by_hydra(scene, fact):
        return False
    if was_seen(fact) and fact.code in (-6, -15) and fact.first:
        return not after_first_wait(scene, fact)
    if was_seen(fact) and not fact.first and "memory" not in fact.by:
        return False  # another one had ended before
    if not was_seen(fact) and _is_seen_elsewhere(scene, fact):
        return False
    if fact.code not in _FATAL or fact.pid in scene.told_to_end():
        return False
    if "memory" in fact.by or (scene.of(OomKill) and fact.code == -9):
        return True
    if fact.code in _KILLED and _after_an_abort(scene, fact):
        return False
    if fact.code == -9 and _all_killed(scene, fact):
        return False
    return not _by_launcher(scene, fact) and not after_first_wait(scene, fact)


def _after_an_abort(scene: Scene, death: Ended) -> bool:
    """Whether a rank had called MPI_Abort above this line, upon which launchers kill all, itself too."""
    aborts = [f for f in scene.of(Ended) if f.by == MPI_ABORT]
    return any(f.file == death.file and f.line < death.line for f in aborts)


def _all_others_lost_it(scene: Scene, death: Ended) -> bool:
    """Whether it alone was killed, without a word, and all others lost a connection, or waited for a
    key of the store to the limit: in a list of exit codes a launcher's own kills look the same.
    """
    killed = {f.rank for f in scene.of(Ended) if f.by == EXIT_LIST}
    spoke = {f.rank for f in scene.of(PythonError)}
    lost = {v.rank for v in scene.victims() if v.rule == "peer_closed"}
    others = set(scene.everyone) - {death.rank}
    noticed = bool(others) and others <= lost
    # Of processes that their parent names by a name of its own, only how many waited is known.
    waited = [v for v in scene.victims() if v.rule == "store_timeout"]
    noticed = noticed or 1 < death.listed == len(waited) + 1
    return killed == {death.rank} and death.rank not in spoke and noticed


def _swept_by_hydra(scene: Scene, death: Ended) -> bool:
    """Whether mpiexec lists other processes too, and may have killed this one for the end of one of
    them: its list is in the order of ranks.
    """
    listed = [f for f in scene.of(Ended) if f.by == HYDRA]
    return len(listed) > 1 and death.code in _KILLED


def _all_killed(scene: Scene, death: Ended) -> bool:
    """Whether every rank of a job of known size was killed: from outside, then, and none first, unless
    all others lived on for long without it.
    """
    kills = [f for f in scene.of(Ended) if f.code == -9]
    every = {f.rank for f in kills} >= set(scene.everyone)
    if not scene.whole or len(scene.everyone) < 2 or not every:
        return False
    others = [f.at for f in kills if f.rank != death.rank]
    return not death.first or death.at <= 0 or min(others) < death.at + _LIVED_ON_S


def _by_launcher(scene: Scene, fact: Ended) -> bool:
    """Whether its launcher killed it because another process had ended."""
    if by_step(fact) and not _crashed_like_the_first(scene, fact):
        return _after_an_exit(scene, fact) or after_the_stop(scene, fact)
    if fact.by == "torchelastic" and _after_the_first_seen(scene, fact):
        return True
    # Lightning kills all others, itself too, once one has ended.
    return fact.by == "shell" and any(f.by == "lightning" for f in scene.of(Ended))


def _after_the_first_seen(scene: Scene, fact: Ended) -> bool:
    """torchelastic ends all others at the first end that it sees, at last by SIGKILL."""
    firsts: list[Ended | CutEnd] = [f for f in scene.of(Ended) if f.by == "torchelastic"]
    firsts = [f for f in [*firsts, *scene.of(CutEnd)] if f.first and f.at > 0]
    return any(f.file == fact.file and fact.at > f.at + 1.0 for f in firsts)


def _is_seen_elsewhere(scene: Scene, fact: Ended) -> bool:
    """Whether `hangdoctor run` saw the same end: its account decides, a log guesses the order."""
    seen = [f for f in scene.of(Ended) if was_seen(f)]
    return any(f.rank == fact.rank >= 0 or f.pid == fact.pid > 0 for f in seen)


def _crashed_like_the_first(scene: Scene, fact: Ended) -> bool:
    """Whether it crashed as the first one did that srun lists, by a signal that srun does not send."""
    first = next(f for f in scene.of(Ended) if by_step(f))
    return fact.code in CRASH_CODES and fact.code == first.code


def _after_an_exit(scene: Scene, fact: Ended) -> bool:
    """srun kills the tasks that are left when one has failed."""
    return any(
        by_step(o)
        and (o.code > 0 or o.code == _ABORT)
        and (o.file, o.line) < (fact.file, fact.line)
        for o in scene.of(Ended)
    )


def _killed_for_memory(scene: Scene, kills: list[OomKill]) -> First:
    ranks = ranks_named(kills)
    nodes = scene.places(ranks, kills)
    whose = _only_named(kills) or kills[0]
    story = LoggedDeath(End(-9, sum(f.events for f in kills)), someone(whose), memory=True)
    ground = Ground.LOG_DEATH if ranks or nodes else Ground.LOG_DEATH_SOMEONE
    finding = Finding("dead", ranks, story, sure(ground), nodes=nodes)
    return First(finding, list(kills), bool(ranks or nodes))


def _only_named(kills: list[OomKill]) -> OomKill | None:
    """The one kill whose process the log names, beside lines that only say that there was one."""
    named = [f for f in kills if f.pid]
    return named[0] if named and len({f.pid for f in named}) == 1 else None
