"""The first process that was killed or exited, and not because another one had ended."""

from __future__ import annotations

from ...model.log_facts import (
    EXIT_LIST,
    HYDRA,
    MPI_ABORT,
    Ended,
    KnownError,
    OomKill,
    PythonError,
)
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_stories import LoggedDeath
from ..findings.named import End
from .also_cut import with_cut_rows
from .candidate import First, someone
from .scene import Scene, ranks_named
from .swept import aborted_alone, after_the_stop, first_by_clock, of_one_node

_ABORT = -6
_FATAL = frozenset({-4, -7, -8, -9, -11})  # not SIGABRT and SIGTERM: those are mostly others' doing
_CRASHES = frozenset({-4, -7, -11})  # which nothing but the process itself brings about
# They end all others at once when they see the first end.
_PARENTS = (
    "spawn",
    "lightning",
    "mpirun",
    HYDRA,
    MPI_ABORT,
    "mpt",
    "alps",
    "gasnet",
    "composer",
    "paddle",
    *("mpispawn", "jsrun", "poe"),
)
_LIVED_ON_S = 5.0  # more than one command takes for all
_KILLED = frozenset({-9, -15})  # as a launcher ends processes, too


def first_death(scene: Scene) -> First | None:
    """The first process that was killed or exited by itself, with those that ended at the same moment."""
    deaths = [f for f in scene.of(Ended) if _is_own_death(scene, f)]
    kills = scene.of(OomKill)
    if not deaths:
        if kills:
            return _killed_for_memory(scene, kills)
        return _silent_exit(scene) or _failed_pod(scene)
    deaths.sort(key=lambda f: (not f.first, max(0.0, f.at)))
    first = deaths[0]
    _name_silent(scene, first)
    alike = [f for f in deaths if _together(first, f)]
    ranks = ranks_named(alike)
    nodes = scene.places(ranks, alike)
    memory = (bool(kills) and first.code == -9) or "memory" in first.by
    story = LoggedDeath(End(first.code, int(memory)), someone(first), memory, left=first.left)
    known = bool(ranks or nodes)
    ground = Ground.LOG_DEATH if ranks else Ground.LOG_DEATH_SOMEONE
    finding = Finding("dead", ranks, story, sure(ground), nodes=nodes)
    return with_cut_rows(scene, first, First(finding, [*alike, *kills], known))


def _name_silent(scene: Scene, death: Ended) -> None:
    """A death without a name is that of the only rank which is not among the victims."""
    if death.rank >= 0 or not scene.whole:
        return
    victims = {f.rank for f in scene.victims()}
    others = [r for r in scene.everyone if r not in victims]
    if len(others) == 1 and len(scene.everyone) > 1:
        death.rank = others[0]


def _together(first: Ended, other: Ended) -> bool:
    """Ends of one kind at one moment: which came first does not show."""
    if other is first:
        return True
    dated = other.at > 0 and abs(other.at - first.at) < 1.0
    undated = other.at <= 0 and first.at <= 0 and first.code in _CRASHES
    return other.code == first.code and (dated or undated or other.line == first.line)


def _is_own_death(scene: Scene, fact: Ended) -> bool:
    """Killed, and not by the launcher, nor in the abort after a time-out."""
    if fact.by == EXIT_LIST:
        return _all_others_lost_it(scene, fact)
    if fact.by == HYDRA and _swept_by_hydra(scene, fact):
        return False
    if _was_seen(fact) and fact.code in (-6, -15) and fact.first:
        return not _after_first_wait(scene, fact)
    if _was_seen(fact) and not fact.first and "memory" not in fact.by:
        return False  # another one had ended before
    if not _was_seen(fact) and _is_seen_elsewhere(scene, fact):
        return False
    if fact.code not in _FATAL or fact.pid in scene.told_to_end():
        return False
    if "memory" in fact.by or (scene.of(OomKill) and fact.code == -9):
        return True
    if fact.code == -9 and _all_killed(scene, fact):
        return False
    return not _by_launcher(scene, fact) and not _after_first_wait(scene, fact)


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
    if _by_step(fact):
        return _after_an_exit(scene, fact) or after_the_stop(scene, fact)
    if fact.by == "torchelastic" and _after_the_first_seen(scene, fact):
        return True
    # Lightning kills all others, itself too, once one has ended.
    return fact.by == "shell" and any(f.by == "lightning" for f in scene.of(Ended))


def _after_the_first_seen(scene: Scene, fact: Ended) -> bool:
    """torchelastic ends all others at the first end that it sees, at last by SIGKILL."""
    firsts = [f for f in scene.of(Ended) if f.by == "torchelastic" and f.first and f.at > 0]
    return any(f.file == fact.file and fact.at > f.at + 1.0 for f in firsts)


def _was_seen(fact: Ended) -> bool:
    """By the parent that watched all ranks of a node: it knows the order, logs guess it."""
    return fact.by.startswith("hangdoctor")


def _is_seen_elsewhere(scene: Scene, fact: Ended) -> bool:
    """Whether `hangdoctor run` saw the same end: its account decides, a log guesses the order."""
    seen = [f for f in scene.of(Ended) if _was_seen(f)]
    return any(f.rank == fact.rank >= 0 or f.pid == fact.pid > 0 for f in seen)


def _by_step(fact: Ended) -> bool:
    """Whether srun says it, or PALS's mpiexec: both end all tasks once one has failed, and list those too."""
    return fact.by.startswith("slurm") or fact.by == "pals"


def _after_an_exit(scene: Scene, fact: Ended) -> bool:
    """srun kills the tasks that are left when one has failed."""
    return any(
        _by_step(o)
        and (o.code > 0 or o.code == _ABORT)
        and (o.file, o.line) < (fact.file, fact.line)
        for o in scene.of(Ended)
    )


def _after_first_wait(scene: Scene, fact: Ended) -> bool:
    if scene.first_wait >= len(scene.facts):
        return False
    wait = scene.facts[scene.first_wait]
    if fact.at > 0 and wait.at > 0 and not wait.inherited:
        return fact.at >= wait.at - 1.0
    return fact.file == wait.file and fact.line > wait.line


def _killed_for_memory(scene: Scene, kills: list[OomKill]) -> First:
    ranks = ranks_named(kills)
    nodes = scene.places(ranks, kills)
    story = LoggedDeath(End(-9, sum(f.events for f in kills)), someone(kills[0]), memory=True)
    ground = Ground.LOG_DEATH if ranks or nodes else Ground.LOG_DEATH_SOMEONE
    finding = Finding("dead", ranks, story, sure(ground), nodes=nodes)
    return First(finding, list(kills), bool(ranks or nodes))


def _silent_exit(scene: Scene) -> First | None:
    """A rank that exited first with an error code and left no word, while others did."""
    quiet = _ends_without_a_word(scene)
    early = [f for f in first_by_clock(scene) if f in quiet]
    if early:
        return _exited_first(scene, early[0], ranks_named(early))
    if aborted_alone(scene, quiet):
        return _exited_first(scene, quiet[0], [quiet[0].rank], alone=True)
    if not quiet or not _was_first(scene, quiet[0]):
        return None
    first = quiet[0]
    silent = not scene.of(PythonError) and first.code > 0 and _was_seen(first)
    if silent and (len(quiet) > 1 or _all_others_were_killed(scene, first)):
        return None  # at one moment, and none has left a word
    together = _by_step(first) or first.by == MPI_ABORT or first.code == 0
    return _exited_first(scene, first, ranks_named(quiet) if together else [first.rank])


def _all_others_were_killed(scene: Scene, first: Ended) -> bool:
    """Whether SIGKILL ended all others in the same second: launchers ask first, so that somebody ended
    them all, as Ray does, and one was quicker to leave.
    """
    killed = {f.rank for f in scene.of(Ended) if f.code == -9 and 0 <= f.at - first.at < 1.0}
    return scene.whole and first.at > 0 and killed == set(scene.everyone) - {first.rank}


def _failed_pod(scene: Scene) -> First | None:
    """The only pod that Kubernetes says has failed, where no line of the job says why."""
    ends = [f for f in scene.of(Ended) if f.by == "kubernetes" and f.code]
    pods = {f.node for f in ends}
    errors: list[PythonError | KnownError] = [*scene.of(PythonError), *scene.of(KnownError)]
    told = any(f.role == "cause" for f in errors)
    if len(pods) != 1 or told:
        return None
    found = _exited_first(scene, ends[0], ranks_named(ends))
    found.finding.nodes = sorted(pods)
    return found


def _exited_first(scene: Scene, first: Ended, ranks: list[int], alone: bool = False) -> First:
    aborted = first.by == MPI_ABORT
    ground = Ground.LOG_ABORT if aborted else Ground.LOG_EXIT
    finding = Finding(
        kind="dead",
        ranks=ranks,
        story=LoggedDeath(End(first.code), left=first.left, aborted=aborted, alone=alone),
        confidence=sure(Ground.LOG_ABORTED_ALONE if alone else ground),
        nodes=scene.nodes(ranks),
    )
    together = [f for f in scene.of(Ended) if (f.file, f.line) == (first.file, first.line)]
    return First(finding, [f for f in together if f.rank in ranks] or [first], True)


def _ends_without_a_word(scene: Scene) -> list[Ended]:
    """First ends with an error code, of ranks that printed no error, before the first wait."""
    errors = scene.of(PythonError)
    if any(f.rank < 0 and f.role != "launcher" for f in errors):
        return []  # it may be that rank's word
    spoke = {f.rank for f in errors}
    silent = [f for f in _bad_ends(scene) if f.rank not in spoke]
    return [f for f in silent if not _after_first_wait(scene, f)]


def _bad_ends(scene: Scene) -> list[Ended]:
    """The first ends that show a failure; what srun says where no node saw one."""
    firsts = [f for f in scene.of(Ended) if f.first and f.rank >= 0]
    bad = [f for f in firsts if _exited(f) or _aborted_without_a_word(scene, f)]
    return bad or _first_of_srun(scene)


def _exited(fact: Ended) -> bool:
    """With an error code; code 0 counts where a parent saw in which order the ranks ended."""
    return fact.code > 0 or (fact.code == 0 and _was_seen(fact))


def _aborted_without_a_word(scene: Scene, fact: Ended) -> bool:
    """SIGABRT that is no watchdog's doing, as of C++ at the exit, and that no error explains."""
    if fact.code != -6 or scene.first_wait < len(scene.facts):
        return False
    errors: list[PythonError | KnownError] = [*scene.of(PythonError), *scene.of(KnownError)]
    return not any(f.role == "cause" for f in errors)


def _was_first(scene: Scene, fact: Ended) -> bool:
    """Whether who reports the end knows the order of ends, or others lost this rank."""
    if _by_step(fact) or _was_seen(fact) or fact.by in _PARENTS:
        return True
    return any(victim.rank != fact.rank for victim in scene.victims())


def _first_of_srun(scene: Scene) -> list[Ended]:
    """The tasks that exited with an error, where srun ended all others for it; or the one that aborted,
    where nothing else was said; or those of one node that did.
    """
    ends = [f for f in scene.of(Ended) if _by_step(f) and f.rank >= 0]
    first = [f for f in ends if (f.file, f.line) == (ends[0].file, ends[0].line)]
    codes = {f.code for f in ends if f not in first}
    if [f.code for f in first] == [_ABORT] and _aborted_without_a_word(scene, first[0]):
        return first if codes <= _KILLED and not scene.victims() else []
    if {f.code for f in first} == {_ABORT} and _aborted_without_a_word(scene, first[0]):
        return of_one_node(scene, ends)
    ended_for_it = bool(codes) and codes <= _KILLED
    return first if ended_for_it and all(f.code > 0 for f in first) else []
