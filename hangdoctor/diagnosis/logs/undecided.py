"""Why the logs of a job name no rank, by how much the reason explains."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from msgspec import structs

from ...model.log_facts import (
    AnyFact,
    Cancelled,
    Ended,
    Finished,
    GlooTimeout,
    Guarded,
    KnownError,
    LineApart,
    Progress,
    PythonError,
    Signalled,
    TimedOut,
)
from ..findings import Op
from ..findings.log_remaining import LogRemaining, PrintedApart, Undecided
from ..findings.log_stories import Quote
from .apart import met_outside
from .counting import last_printed
from .cut_tracebacks import cut_in_wait
from .first_exit import STUCK
from .followed import failed_before, followed, lost_lines, of_victims
from .left_before import left_before
from .library_waits import at_a_queue, in_states
from .nccl_behind import with_calls
from .printed_otherwise import all_said_the_end, apart_in_print
from .printed_steps import left_behind_in_prints
from .scene import Scene, ranks_named
from .swept import not_swept
from .threads import gone_on
from .undecided_waits import WATCHDOG, of_waits
from .unread_failures import tests_ended_before

_LAUNCHER = "the launcher"
# By SIGABRT, and those that a launcher ends for it
_WATCHDOGS_ENDS = (-signal.SIGABRT, -signal.SIGTERM, -signal.SIGKILL)


def why_none(scene: Scene) -> LogRemaining:
    """Why the logs name no rank."""
    cut = any(wait.cut for wait in scene.of(TimedOut))
    why = structs.replace(_why_none(scene), before=gone_on(scene), apart=_apart(scene), cut=cut)
    why = structs.replace(why, tested=_tested(scene), left=left_before(scene))
    return with_calls(scene, structs.replace(why, behind=left_behind_in_prints(scene)))


def _tested(scene: Scene) -> Quote | None:
    """The end of a run of tests that went well, before the first connection was lost."""
    lost = lost_lines(scene)
    end = tests_ended_before(scene, lost[0]) if lost else None
    return scene.quote(end) if end is not None else None


def _apart(scene: Scene) -> PrintedApart | None:
    """The only rank that printed other numbers at its start; None where several lines name several."""
    lines = scene.of(LineApart)
    if not lines:
        return apart_in_print(scene)
    if len({line.rank for line in lines}) > 1:
        return None
    first = lines[0]
    return PrintedApart(first.rank, scene.quote(first), first.usual)


def _why_none(scene: Scene) -> LogRemaining:
    cancelled = scene.of(Cancelled)
    if cancelled and not failed_before(scene, cancelled[-1]):
        return _cancelled(scene, cancelled[-1])
    waits = of_waits(scene)
    return waits or _interrupted(scene) or _signalled(scene) or _without_waits(scene)


def _interrupted(scene: Scene) -> LogRemaining | None:
    """By Ctrl-C, which met few ranks elsewhere than all others; a hang or not."""
    met = met_outside(scene)
    if met is None:
        return None
    at = Op("", frame=met[0][0].frame)
    return LogRemaining(Undecided.INTERRUPTED, tuple(ranks_named(met[0])), at)


def _signalled(scene: Scene) -> LogRemaining | None:
    """The launcher's own word that it was asked to end."""
    asked = scene.of(Signalled)
    if not asked or failed_before(scene, asked[0]):
        return None
    numbers = {f.number for f in asked}
    codes = tuple(sorted(-n for n in numbers))
    senders = {f.sender for f in asked}
    return LogRemaining(
        Undecided.SIGNALLED,
        codes=codes,
        library="" if any(f.pid for f in asked) else _LAUNCHER,
        sender=senders.pop() if len(senders) == 1 else 0,
        last=last_printed(scene),
        trouble=_trouble_before(scene, asked[0]),
    )


def _cancelled(scene: Scene, fact: Cancelled) -> LogRemaining:
    last, trouble = last_printed(scene), _trouble_before(scene, fact)
    if "TIME LIMIT" in fact.why:
        by = "the scheduler" if fact.why.startswith("WALL") else "Slurm"
        return LogRemaining(Undecided.TIME_LIMIT, last=last, trouble=trouble, library=by)
    if "PREEMPT" in fact.why:
        return LogRemaining(Undecided.PREEMPTED, last=last, trouble=trouble)
    reason = Undecided.TASK_FAILED if "FAIL" in fact.why else Undecided.CANCELLED
    return LogRemaining(
        reason,
        last=last,
        trouble=trouble,
        meaning=fact.why.lower(),
        quiet=not_swept(scene),
    )


def _without_waits(scene: Scene) -> LogRemaining:
    victims = scene.victims()
    ends = [f for f in scene.of(Ended) if f.code]
    gave_up = [f for f in ends if f.waited_s > 0]
    if gave_up:
        first = gave_up[0]
        return LogRemaining(
            Undecided.GAVE_UP, (first.rank,), code=first.code, seconds=first.waited_s
        )
    guards = scene.of(Guarded)
    if guards:
        return _of_guards(guards)
    if not victims and not ends and _left_the_store(scene):
        return _of_course(scene)
    of_others = of_victims(scene, victims) if victims or lost_lines(scene) else None
    if of_others is not None:
        return of_others
    words = _words_before(scene, ends) or _stuck(scene)
    if words is not None:
        return words
    if ends:
        alike = _that_say_most(ends)
        ranks = tuple(ranks_named(alike))
        return LogRemaining(
            Undecided.ABORTS_ONLY,
            ranks,
            code=alike[0].code,
            process=alike[0].pid if len(alike) == 1 else 0,
            node=alike[0].node if len(alike) == 1 else "",
            source=scene.source,
            quiet=_without_exit(scene, ends),
        )
    return _of_course(scene)


def _that_say_most(ends: Sequence[Ended]) -> list[Ended]:
    """The ends like the first one of a launcher's table; those that it ended itself by SIGTERM only where
    it shows no others.
    """
    by_table = ends[0].by == "torchelastic"
    own = [f for f in ends if f.by == ends[0].by and f.code != -signal.SIGTERM]
    chosen = own if by_table and own else ends
    first = next((f for f in chosen if f.first), chosen[0]) if by_table else chosen[0]
    return [f for f in chosen if f.code == first.code]


def _words_before(scene: Scene, ends: Sequence[Ended]) -> LogRemaining | None:
    """The words of a library that gave up, where they stand before the first of these ends: then the log
    does show something before it.
    """
    words = followed(scene) if ends else None
    if words is None or words.last is None:
        return None
    first = ends[0]
    same = words.last.file == scene.logs.files[first.file].name
    return words if same and words.last.line < first.line else None


def _without_exit(scene: Scene, ends: Sequence[Ended]) -> tuple[int, ...]:
    """The few whose exit `hangdoctor run` has not kept, where it has that of all others: a run for one
    rank alone keeps none that went well.
    """
    rest = sorted(set(scene.everyone) - set(ranks_named(ends)))
    few = scene.source == "boxes" and 2 * len(rest) < len(scene.everyone)
    return tuple(rest) if few else ()


def _of_guards(guards: Sequence[Guarded]) -> LogRemaining:
    seconds = max(f.seconds for f in guards)
    ranks, places = tuple(ranks_named(guards)), {f.place for f in guards}
    op = Op(guards[0].place) if len(places) == 1 and guards[0].place else None
    return LogRemaining(Undecided.GUARDED, ranks, op, seconds=seconds)


def _of_course(scene: Scene) -> LogRemaining:
    """How far the job came, where nothing else is known."""
    steps = [f for f in scene.of(Progress) if not f.part]
    iteration = max((f.iteration for f in steps), default=-1)
    complete = any(0 < f.total <= f.iteration for f in steps)
    at_its_end = _trouble(scene) is None or any(map(_of_store, lost_lines(scene)))
    clean = (_finished(scene) and not _failed_later(scene)) or (complete and at_its_end)
    clean = clean or all_said_the_end(scene)
    if clean and not _troubled(scene.facts):
        return LogRemaining(Undecided.ENDED_CLEANLY, iteration=iteration, source=scene.source)
    failed = _of_failure(scene)
    if failed is not None:
        return failed
    if iteration >= 0:
        return LogRemaining(Undecided.GOES_ON, iteration=iteration, trouble=_any_trouble(scene))
    return LogRemaining(Undecided.NO_END, trouble=_any_trouble(scene))


def _of_failure(scene: Scene) -> LogRemaining | None:
    """What shows that something failed, and not what: a watchdog that did not move, words that follow
    from a failure, the launcher's own.
    """
    words = _stuck(scene) or followed(scene) or at_a_queue(scene) or in_states(scene)
    words = words or cut_in_wait(scene)
    if words is not None:
        return words
    errors: list[KnownError | PythonError] = [*scene.of(KnownError), *scene.of(PythonError)]
    seen = [f for f in errors if f.role == "launcher" and not f.survived]
    return LogRemaining(Undecided.LAUNCHER_ONLY, _listed_in(seen)) if seen else None


def _listed_in(seen: Sequence[KnownError | PythonError]) -> tuple[int, ...]:
    """The ranks that a launcher's own line lists as failed."""
    lists = [f.values["ranks"] for f in seen if f.values.get("ranks")]
    return tuple(sorted({int(rank) for row in lists for rank in row.split(",")}))


def _stuck(scene: Scene) -> LogRemaining | None:
    """Whose watchdog said that it did not move; it then ends its process."""
    stuck = [f for f in scene.of(KnownError) if f.rule == STUCK and not f.survived]
    others = {f.code for f in scene.of(Ended)} - {0, *_WATCHDOGS_ENDS}
    if not stuck or others:
        return None
    seconds = max(float(f.values.get("seconds", 0)) for f in stuck)
    ranks = tuple(ranks_named(stuck))
    return LogRemaining(Undecided.WATCHDOG_STUCK, ranks, seconds=seconds)


def _trouble_before(scene: Scene, end: AnyFact) -> Quote | None:
    """The same, where it stands before the line of this end in the same file."""
    file = scene.logs.files[end.file]
    if not file.trouble or file.trouble_line >= end.line:
        return None
    return Quote(file.name, file.trouble_line, file.trouble)


def _trouble(scene: Scene) -> Quote | None:
    """The first line that says error, which no rule knows."""
    files = [file for file in scene.logs.files if file.trouble]
    return Quote(files[0].name, files[0].trouble_line, files[0].trouble) if files else None


def _any_trouble(scene: Scene) -> Quote | None:
    """The same; else the first line that speaks of a failure otherwise."""
    trouble = _trouble(scene)
    if trouble is not None or not scene.unread:
        return trouble
    first = scene.unread[0]
    return scene.quote(first, first.text)


def _finished(scene: Scene) -> bool:
    """Whether a line that only a clean end prints is there, or all ranks ended with exit code 0."""
    clean = scene.of(Finished)
    of_boxes = {f.rank for f in scene.by_boxes() if isinstance(f, Finished)}
    return len(clean) > len(of_boxes) or (bool(clean) and of_boxes >= set(scene.everyone))


def _failed_later(scene: Scene) -> bool:
    """Whether a line that says error stands after the last one that only a clean end prints."""
    lines = [(f.file, f.line) for f in scene.of(Finished)]
    later = [
        file
        for index, file in enumerate(scene.logs.files)
        if file.trouble and any(at < (index, file.trouble_line) for at in lines if at[0] == index)
    ]
    return bool(later) and not any(map(_of_store, lost_lines(scene)))


def _left_the_store(scene: Scene) -> bool:
    """Whether a job that came to its end only warns of its store: whoever holds it had ended first."""
    clean = _of_course(scene).reason is Undecided.ENDED_CLEANLY
    return clean and all(_of_store(fact) for fact in lost_lines(scene))


def _of_store(fact: AnyFact) -> bool:
    return "TCPStore" in fact.says or "shutdown the rendezvous" in fact.says


def _troubled(facts: list[AnyFact]) -> bool:
    """Anything that a clean run does not print after its end."""
    waited = any(isinstance(f, TimedOut | GlooTimeout) for f in facts)
    return waited or any(isinstance(f, KnownError) and f.rule == WATCHDOG for f in facts)
