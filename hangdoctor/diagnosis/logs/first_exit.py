"""The first process that ended with an error code, or by an abort, and left no word of its own."""

from __future__ import annotations

from ...model.log_facts import HYDRA, MPI_ABORT, Ended, Finished, KnownError, PythonError
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_stories import LoggedDeath
from ..findings.named import End
from .candidate import First, one_place, someone
from .ends import after_first_wait, by_step, was_seen
from .scene import Scene, ranks_named
from .swept import (
    aborted_alone,
    aborted_before_the_sweep,
    exited_alone,
    first_by_clock,
    of_one_node,
    said_to_be_first,
)

STUCK = "heartbeat"  # a rule: NCCL's watchdog did not move
_BY_WATCHDOGS = (STUCK, "watchdog_abort")  # rules: what they print before they end their process
_ABORT = -6
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
_KILLED = frozenset({-9, -15})  # as a launcher ends processes, too


def silent_exit(scene: Scene) -> First | None:
    """A rank that exited first with an error code and left no word, while others did."""
    quiet = _ends_without_a_word(scene)
    if any(f.by == MPI_ABORT and f.waited_s for f in quiet):
        return None  # its own time limit ended it
    early = [f for f in first_by_clock(scene) if f in quiet]
    if early:
        return _exited_first(scene, early[0], ranks_named(early))
    if aborted_alone(scene, quiet) or exited_alone(scene, quiet):
        return _exited_first(scene, quiet[0], [quiet[0].rank], alone=True)
    if not quiet or not _was_first(scene, quiet[0]):
        return _first_by_its_launcher(scene, quiet)
    first = quiet[0]
    silent = not scene.of(PythonError) and first.code > 0 and was_seen(first)
    if silent and (len(quiet) > 1 or _all_others_were_killed(scene, first)):
        return None  # at one moment, and none has left a word
    together = by_step(first) or first.by == MPI_ABORT or first.code == 0
    return _exited_first(scene, first, ranks_named(quiet if together else [first]))


def _first_by_its_launcher(scene: Scene, quiet: list[Ended]) -> First | None:
    """Whom the launcher saw fail before it ended the others, where nothing else shows who was first."""
    said = said_to_be_first(scene, quiet) or aborted_before_the_sweep(scene)
    if not said:
        return None
    by = "torchrun" if said[0].by == "torchelastic" else "srun"
    return _exited_first(scene, said[0], ranks_named(said), alone=True, by=by)


def _all_others_were_killed(scene: Scene, first: Ended) -> bool:
    """Whether SIGKILL ended all others in the same second: launchers ask first, so that something else ended
    them all, as Ray does, and one was quicker to leave.
    """
    killed = {f.rank for f in scene.of(Ended) if f.code == -9 and 0 <= f.at - first.at < 1.0}
    return scene.whole and first.at > 0 and killed == set(scene.everyone) - {first.rank}


def failed_pod(scene: Scene) -> First | None:
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


def _exited_first(
    scene: Scene, first: Ended, ranks: list[int], alone: bool = False, by: str = ""
) -> First:
    aborted = first.by == MPI_ABORT
    ground = Ground.LOG_ABORT if aborted else Ground.LOG_EXIT
    if alone:
        seen = by and first.code == _ABORT
        ground = Ground.LOG_SEEN_FIRST if seen else Ground.LOG_ABORTED_ALONE
    finding = Finding(
        kind="dead",
        ranks=ranks,
        story=LoggedDeath(
            End(first.code if first.given else 0),
            someone(first),
            left=first.left,
            aborted=aborted,
            others=first.more if aborted else 0,
            alone=alone,
            by=by,
        ),
        confidence=sure(ground),
        nodes=scene.nodes(ranks) if ranks else scene.places([], [first]),
        frame=one_place(f for f in scene.of(Ended) if f.by == first.by and f.rank in ranks),
    )
    together = [f for f in scene.of(Ended) if (f.file, f.line) == (first.file, first.line)]
    named = bool(ranks or finding.nodes)
    return First(finding, [f for f in together if f.rank in ranks] or [first], named)


def _ends_without_a_word(scene: Scene) -> list[Ended]:
    """First ends with an error code, of ranks that printed no error, before the first wait."""
    errors = scene.of(PythonError)
    if any(f.rank < 0 and f.role != "launcher" and not f.survived for f in errors):
        return []  # it may be that rank's word
    spoke = {f.rank for f in errors}
    silent = [f for f in _bad_ends(scene) if f.rank not in spoke]
    return [f for f in silent if not after_first_wait(scene, f)]


def _bad_ends(scene: Scene) -> list[Ended]:
    """The first ends that show a failure; what srun says where no node saw one."""
    listed = [f for f in scene.of(Ended) if f.first and (f.rank >= 0 or f.by == HYDRA)]
    firsts = [] if _several_in_a_sweep(listed) else listed
    bad = [f for f in firsts if _exited(scene, f) or _aborted_without_a_word(scene, f)]
    return bad or _first_of_srun(scene)


def _several_in_a_sweep(listed: list[Ended]) -> bool:
    """Whether mpiexec lists several with an error code between those that were killed: these may have
    lost one that was.
    """
    of_hydra = [f for f in listed if f.by == HYDRA]
    exited = {f.rank for f in of_hydra if f.code > 0}
    return len(exited) > 1 and any(f.code in _KILLED for f in of_hydra)


def _exited(scene: Scene, fact: Ended) -> bool:
    """With an error code; code 0 counts where a parent saw in which order the ranks ended, and of
    MPI_Abort, which ends the job with whatever code, unless that was at its end.
    """
    early = fact.by == MPI_ABORT and not scene.of(Finished)
    return fact.code > 0 or (fact.code == 0 and (was_seen(fact) or early))


def _aborted_without_a_word(scene: Scene, fact: Ended) -> bool:
    """SIGABRT that is no watchdog's doing, as of C++ at the exit, and that no error explains."""
    if fact.code != -6 or scene.first_wait < len(scene.facts):
        return False
    errors: list[PythonError | KnownError] = [*scene.of(PythonError), *scene.of(KnownError)]
    return not any(f.role == "cause" or f.rule in _BY_WATCHDOGS for f in errors)


def _was_first(scene: Scene, fact: Ended) -> bool:
    """Whether who reports the end knows the order of ends, or others lost this rank."""
    if by_step(fact) or was_seen(fact) or fact.by in _PARENTS:
        return True
    return any(victim.rank != fact.rank for victim in scene.victims())


def _first_of_srun(scene: Scene) -> list[Ended]:
    """The tasks that exited with an error, where srun ended all others for it; or the one that aborted,
    where nothing else was said; or those of one node that did.
    """
    ends = [f for f in scene.of(Ended) if by_step(f) and f.rank >= 0]
    first = [f for f in ends if (f.file, f.line) == (ends[0].file, ends[0].line)]
    codes = {f.code for f in ends if f not in first}
    if [f.code for f in first] == [_ABORT] and _aborted_without_a_word(scene, first[0]):
        return first if codes <= _KILLED and not scene.victims() else []
    if {f.code for f in first} == {_ABORT} and _aborted_without_a_word(scene, first[0]):
        return of_one_node(scene, ends)
    ended_for_it = bool(codes) and codes <= _KILLED
    return first if ended_for_it and all(f.code > 0 for f in first) else []
