"""The first exception or known error of a log that is no consequence of another process's end."""

from __future__ import annotations

from collections.abc import Sequence

from ...model.log_facts import (
    MPI_ABORT,
    AnyFact,
    Ended,
    KnownError,
    PeerClosed,
    Progress,
    PythonError,
    Signalled,
    TimedOut,
)
from ...stacks import starters
from ..findings.log_stories import FailedFirst
from .alive_after_all import without_the_living
from .candidate import Error, First
from .children_before import without_their_words
from .cut_tracebacks import is_explained, says_nothing
from .error_findings import OF_ACTORS, ONE_MOMENT_S, line_of, of_errors, only_warned
from .last_lines import count_in, left_alone
from .listened import with_its_host
from .nccl_reasons import tell_beside, without_the_general
from .printed_otherwise import spoke_on, went_on_after
from .relayed import relayed
from .reported import ended_for_another
from .scene import WAITS, Scene, is_dated, ranks_named
from .swept import with_those_that_failed_too
from .threads import may_have_hung, of_thread

_ONLY_AT_ENDS = ("error_line", "hdf5")  # others
_AT_EXITS = ("heap_broken", "cxx_pure_virtual")  # others, which tidying up brings about, too
_STATES = ("gpu_gone", "gpu_lost")  # others, of what is so still when it is looked at, afterwards
_LEFT = "mpi_left"  # another one
ATP = "atp"  # another one
_ASKED = (-15, 143)
_OFTEN = 2
_REPORTS = (
    "spark_task",
    "actor_creation",
    "tf_memory",
)  # rules of a launcher's word on a process, worth less than its own error
# Rules: a parent's word on how a process ended, which does not say why
_CHILD = ("child_ended", "called_program")


def first_error(scene: Scene) -> First | None:
    """The earliest of the errors that can have come first, with those like it."""
    every = _candidates(scene)
    alone = left_alone(every)
    candidates = [f for f in every if f not in alone]
    # A line that says which rank, device or file is worth more than one without a name at the same
    # time, and the last line of a traceback more than a traceback that was cut.
    candidates = [f for f in candidates if not _is_told(f, candidates)]
    chosen = [f for f in candidates if not _was_cut(f)] or candidates
    chosen = [f for f in chosen if not only_warned([f])] or chosen
    chosen = [f for f in chosen if not of_thread(f)] or chosen  # the process goes on without it
    chosen = [f for f in chosen if f.rule not in _REPORTS] or chosen
    chosen = [f for f in chosen if not relayed(f)] or chosen
    chosen = _without_caught(chosen)
    if scene.of(Signalled):
        chosen = [f for f in chosen if not _was_lived_with(f)]
    if not _hung_or_ended_badly(scene):
        chosen = [f for f in chosen if not (_was_caught(f) and _went_on(scene, f))]
    with_general, chosen = chosen, without_the_general(chosen)
    if not chosen or (only_warned(chosen) and not _troubled(scene)):
        return None
    first = chosen[0]
    if _between(scene, first) and not is_dated(first):
        first = next((f for f in chosen if not _between(scene, f)), first)
    alike = [f for f in chosen if _same(first, f) and not _reported_later(scene, first, f)]
    found = of_errors(scene, first, alike)
    tell_beside(scene, found, with_general)
    count_in(found, alone)
    found = without_their_words(scene, found)
    return _and_others(scene, without_the_living(scene, with_its_host(scene, found)))


def _without_caught(chosen: list[Error]) -> list[Error]:
    """Without tracebacks that the program caught and logged, where a process ended by another one
    that it did not catch: programs log what they live with.
    """
    ended = [f for f in chosen if isinstance(f, PythonError) and f.error and not _was_caught(f)]
    if not ended:
        return chosen
    return [f for f in chosen if not _was_caught(f)]


def _was_caught(fact: Error) -> bool:
    return isinstance(fact, PythonError) and (fact.logged or fact.inside)


def _was_lived_with(fact: Error) -> bool:
    """Whether the job had gone on after it more than once; then its end from outside is no
    consequence of it.
    """
    return isinstance(fact, PythonError) and fact.logged and fact.times > _OFTEN


def _went_on(scene: Scene, fact: Error) -> bool:
    """Whether every rank spoke on below it, or its own went on, or the program had gone on after
    others like it, on whichever rank: the last of these, which no step follows, is no other than
    they.
    """
    if spoke_on(scene, fact) or went_on_after(scene, fact):
        return True
    if not isinstance(fact, PythonError):
        return False
    alike = [f for f in scene.of(PythonError) if (f.error, f.frame) == (fact.error, fact.frame)]
    if any(f.survived and f.rank == fact.rank for f in alike):
        return True
    often = sum(f.times for f in alike) > _OFTEN and any(f.survived for f in alike)
    return often and any(_moved(f) > fact.line for f in scene.of(Progress) if f.file == fact.file)


def _moved(progress: Progress) -> int:
    return progress.moved or progress.line


def _reported_later(scene: Scene, first: AnyFact, other: AnyFact) -> bool:
    """Whether others had lost a connection before a launcher reports the end of a further process: that end is
    no equal of the first one, it may follow from it.
    """
    reports = isinstance(other, KnownError) and other.rule in OF_ACTORS and other.pid > 0
    if not reports or other.pid == first.pid or first.pid <= 0 or other.file != first.file:
        return False
    lost = [*scene.victims(), *scene.of(PeerClosed)]
    lost += [f for f in scene.of(KnownError) if f.role == "consequence" and not f.survived]
    return any(f.file == first.file and first.line < f.line < other.line for f in lost)


def _and_others(scene: Scene, found: First) -> First:
    """With the ranks that ended like it, and before it, without a word of their own."""
    others = with_those_that_failed_too(scene, found.finding.ranks) if found.finding.ranks else []
    if others and isinstance(found.finding.story, FailedFirst):
        found.finding.ranks = sorted({*found.finding.ranks, *ranks_named(others)})
        found.finding.nodes = scene.nodes(found.finding.ranks)
        found.facts += others
    return found


def _candidates(scene: Scene) -> list[Error]:
    """The errors that can have come first, in their order."""
    found = []
    for position, fact in scene.positioned(PythonError, KnownError):
        assert isinstance(fact, Error)
        if _can_be_first(scene, position, fact):
            found.append(fact)
    return [f for f in found if f.rule not in _CHILD] or found


def _troubled(scene: Scene) -> bool:
    """Whether a rank waited in vain, lost a connection, ended badly, or raised what no more than follows."""
    raised = any(not fact.survived for fact in scene.of(PythonError))
    return raised or _hung_or_ended_badly(scene)


def _hung_or_ended_badly(scene: Scene) -> bool:
    waited = scene.first_wait < len(scene.facts)
    return waited or bool(scene.victims()) or any(f.code for f in scene.of(Ended))


def _is_told(fact: Error, others: Sequence[Error]) -> bool:
    """Whether a launcher's word on a process stands beside that one's own traceback, if a cut one."""
    own = [f for f in others if isinstance(f, PythonError) and f.pid == fact.pid > 0]
    own = [f for f in own if f.file == fact.file and f.rule not in _REPORTS]
    return fact.rule in _REPORTS and bool(own)


def _was_cut(fact: Error) -> bool:
    """Whether a traceback's last line, which has the error's name, is missing."""
    return isinstance(fact, PythonError) and not fact.error


def _between(scene: Scene, fact: Error) -> bool:
    """Whether it lies between its speaker and another process."""
    text = scene.logs.rules.get(fact.rule)
    return text is not None and text.between


def _can_be_first(scene: Scene, position: int, fact: Error) -> bool:
    if fact.role != "cause" or fact.survived:
        return False
    if fact.rule in _ONLY_AT_ENDS and not _ended_badly(scene, fact):
        return False
    if of_thread(fact) and not may_have_hung(scene, position):
        return False
    if _only_follows(scene, position, fact):
        return False
    if _was_cut(fact) and (is_explained(scene, position, fact) or says_nothing(fact)):
        return False
    before = position < scene.first_wait or _unordered(scene, fact) or fact.rule in _STATES
    return before or led_to_its_wait(scene, fact)


def _only_follows(scene: Scene, position: int, fact: Error) -> bool:
    """Whether it says no more than how an end went on that something else had begun."""
    if fact.rank < 0 and _was_aborted_before(scene, fact):
        return True
    if _waited_at_a_queue(fact):
        return True  # for a process on its other side
    if fact.rule == ATP and fact.rank in {f.rank for f in _aborts(scene)}:
        return True  # the stack of its own abort
    if fact.rule in _AT_EXITS and _had_lost_before(scene, position):
        return True
    if fact.rule == _LEFT and _aborted_by_then(scene, fact):
        return True  # it, or another one, had ended the job, which is how it left
    if fact.pid > 0 and fact.rule == "actor_died" and fact.pid in _timed_out(scene):
        return True  # its own watchdog ended it
    if fact.rule in OF_ACTORS and ended_for_another(scene, fact):
        return True
    return _tells_of_an_end(scene, fact)


def _waited_at_a_queue(fact: Error) -> bool:
    """Whether it is the time limit of a wait at a queue in shared memory, between an engine and its workers."""
    if not isinstance(fact, PythonError) or fact.error != "TimeoutError" or fact.frame is None:
        return False
    return fact.frame.file.endswith("shm_broadcast.py")


def _was_aborted_before(scene: Scene, fact: Error) -> bool:
    """Whether a process crashed behind the line by which another one called MPI_Abort, which ends all."""
    text = scene.logs.rules.get(fact.rule)
    crash = text is not None and text.kind == "dead"
    return crash and _is_below(fact, _aborts(scene))


def _tells_of_an_end(scene: Scene, fact: Error) -> bool:
    """Whether a launcher raised it below the line on which one of its processes is said to have ended."""
    if not isinstance(fact, PythonError) or fact.rank >= 0 or not starters.launches(fact.frames):
        return False
    return _is_below(fact, [f for f in scene.of(Ended) if f.code])


def _aborts(scene: Scene) -> list[Ended]:
    return [fact for fact in scene.of(Ended) if fact.by == MPI_ABORT]


def _is_below(fact: AnyFact, others: Sequence[AnyFact]) -> bool:
    """Whether it stands below one of them, in its file."""
    return any(f.file == fact.file and f.line < fact.line for f in others)


def _had_lost_before(scene: Scene, position: int) -> bool:
    """Whether a process had lost another one, or waited in vain, before: its way out shows such errors, too."""
    lost = [f for f in scene.facts[:position] if isinstance(f, PeerClosed | TimedOut)]
    said = [f for f in scene.victims() if f in scene.facts[:position]]
    return bool(lost or said)


def _aborted_by_then(scene: Scene, fact: AnyFact) -> bool:
    """Whether the rank called MPI_Abort, or another one had done so above this line."""
    aborts = _aborts(scene)
    return _is_below(fact, aborts) or any(f.rank == fact.rank for f in aborts)


def _ended_badly(scene: Scene, fact: Error) -> bool:
    """Whether a launcher, or MPI, names the same rank as one that ended with an error."""
    left = [f for f in scene.of(KnownError) if f.rule == _LEFT]
    ends = [f for f in scene.of(Ended) if f.code not in (0, *_ASKED)]
    return fact.rank >= 0 and any(f.rank == fact.rank for f in [*left, *ends])


def _timed_out(scene: Scene) -> set[int]:
    """The processes that waited until a limit, and said so."""
    return {f.pid for f in scene.of(TimedOut)}


def led_to_its_wait(scene: Scene, fact: AnyFact) -> bool:
    """Whether the wait of its rank that reached the limit, or lost the others, was entered while this
    error was handled, as by a callback that saves: it came before, wherever it is printed. Of no more
    than one rank.
    """
    if not isinstance(fact, PythonError) or fact.rank < 0 or not fact.error:
        return False
    waits = [v for v in scene.victims() if v.rule in WAITS and v.chained]
    causes = [e for e in scene.of(PythonError) if e.role == "cause" and e.error]
    led = {e.rank for e in causes for v in waits if _handled_in(v, e)}
    return led == {fact.rank} and any(_handled_in(v, fact) for v in waits)


def _handled_in(wait: PythonError, error: PythonError) -> bool:
    same = (wait.rank, wait.file, wait.chained) == (error.rank, error.file, error.error)
    return same and wait.line > error.line


def _unordered(scene: Scene, fact: AnyFact) -> bool:
    """Nothing shows that it came after the first wait: another file, and no stamp."""
    if scene.first_wait >= len(scene.facts):
        return True
    wait = scene.facts[scene.first_wait]
    return min(fact.at, wait.at) <= 0 and fact.file != wait.file


def _same(one: AnyFact, other: AnyFact) -> bool:
    if isinstance(one, PythonError) and isinstance(other, PythonError):
        if one.rule and one.rule == other.rule and not (is_dated(one) or is_dated(other)):
            return (one.error, one.file) == (other.error, other.file)  # in no order
        if _raised_alike(one, other):
            return True
        return (one.error, one.rule, line_of(one)) == (other.error, other.rule, line_of(other))
    rules = {getattr(one, "rule", ""), getattr(other, "rule", "")}
    return len(rules) == 1 and "" not in rules


def _raised_alike(one: PythonError, other: PythonError) -> bool:
    """Whether two ranks raised one error in one place, and no clock shows which did first."""
    if not one.error or one.rank == other.rank or min(one.rank, other.rank) < 0:
        return False
    apart = is_dated(one) and is_dated(other) and abs(one.at - other.at) >= ONE_MOMENT_S
    return not apart and one.error == other.error and line_of(one) == line_of(other) is not None
