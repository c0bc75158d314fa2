"""Why the logs of a job name no rank, by how much the reason explains."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from msgspec import structs

from ...model.log_facts import (
    AnyFact,
    Cancelled,
    Counted,
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
    Told,
)
from ..findings import Op
from ..findings.log_remaining import LogRemaining, PrintedApart, Undecided
from ..findings.log_stories import Quote
from .apart import met_outside
from .counter_leads import awaited, in_gloo, left_behind
from .counters import told_by_themselves
from .counting import last_printed
from .cut_tracebacks import cut_in_wait
from .first_exit import STUCK
from .followed import failed_before, followed, lost_lines, of_victims
from .left_before import left_before
from .library_waits import at_a_queue, in_states, of_libraries
from .nccl_behind import with_calls
from .printed_otherwise import all_said_the_end, apart_in_print
from .printed_steps import left_behind_in_prints
from .scene import Scene, op_of, ranks_named
from .swept import not_swept
from .threads import gone_on
from .unread_failures import tests_ended_before

_WATCHDOG = "watchdog_abort"  # a rule
_LAUNCHER = "the launcher"
_PARTED = ("_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE")
# By SIGABRT, and those that a launcher ends for it
_WATCHDOGS_ENDS = (-signal.SIGABRT, -signal.SIGTERM, -signal.SIGKILL)
_SHOWN = 3  # ranks that do not say what the others do
_NEAR, _PAIR = 16, 2  # numbers of one counter; ranks


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
    waits = _of_waits(scene)
    return waits or _interrupted(scene) or _signalled(scene) or _without_waits(scene)


def _interrupted(scene: Scene) -> LogRemaining | None:
    """By Ctrl-C, which met few ranks elsewhere than all others; a hang or not."""
    met = met_outside(scene)
    if met is None:
        return None
    at = Op("", frame=met[0][0].frame)
    return LogRemaining(Undecided.INTERRUPTED, tuple(ranks_named(met[0])), at)


def _of_waits(scene: Scene) -> LogRemaining | None:
    """Ranks that waited until a limit."""
    ahead = left_behind(scene)
    if ahead is not None:
        return ahead
    waits = scene.of(TimedOut)
    ranks = tuple(ranks_named([*waits, *_in_the_same(scene, waits)]))
    if len(ranks) > 1:
        named = {(w.op, w.seq) for w in waits if w.op}  # in some lines the name is cut
        one = named | {("", w.seq) for w in waits if w.seq not in {seq for _, seq in named}}
        reason = Undecided.EQUAL_COUNTERS if len(one) == 1 else Undecided.WAITERS_ONLY
        if len(one) > 1:
            furthest = _furthest_behind(waits)
            return LogRemaining(
                reason,
                ranks,
                waited=_in_which(waits, ranks),
                furthest=furthest.rank if furthest is not None else -1,
                furthest_op=op_of([furthest]) if furthest is not None else None,
                unheard=_of_its_size(waits, ranks),
            )
        found = LogRemaining(reason, ranks, op_of(waits), unheard=_unheard(waits, ranks))
        return structs.replace(found, sizes=_sizes(waits), awaited=_asked_for(scene, ranks))
    if waits:
        at = structs.replace(op_of(waits), frame=waits[0].frame)
        heard = {*scene.logs.heard, *ranks_named(scene.facts)}  # an abort, say, is a sign of it
        others = tuple(rank for rank in scene.everyone if rank not in heard)
        unnamed = any(error.rank < 0 for error in scene.of(PythonError))  # which may be theirs
        few = scene.whole and 0 < len(others) <= _SHOWN and not unnamed
        ended = tuple(rank for rank in _ended_by_watchdogs(scene) if rank not in ranks)
        alone = LogRemaining(
            Undecided.ONE_WAITER, ranks, at, unheard=others if few else (), aborted=ended
        )
        return in_gloo(scene, structs.replace(alone, awaited=_asked_for(scene, ranks)))
    told = [f for f in scene.of(Told) if f.by == -1]
    counted = [f for f in scene.of(Counted) if f.at_work >= 0]
    ranks = tuple(ranks_named([*told, *counted]))
    if ranks:
        return _by_number(scene, ranks, counted)
    by = sorted({f.by for f in scene.of(Told) if f.by >= 0})
    if len(by) == 1:  # in the words of those that it told
        return LogRemaining(Undecided.ONE_WAITER, tuple(by), Op("an operation"))
    return of_libraries(scene)


def _ended_by_watchdogs(scene: Scene) -> list[int]:
    """The ranks that say so: they had waited as well, or met an error of NCCL's."""
    return ranks_named(f for f in scene.of(KnownError) if f.rule == "watchdog_abort")


def _by_number(scene: Scene, ranks: tuple[int, ...], counted: Sequence[Counted]) -> LogRemaining:
    """Of waits whose operation is known by its number alone, if at all."""
    numbers = {f.rank: f.at_work for f in counted}
    numbers |= {f.rank: f.seq for f in told_by_themselves(scene) if f.rank not in numbers}
    distinct = set(numbers.values())
    op = Op("operation", distinct.pop()) if len(distinct) == 1 else Op("an operation")
    if len(ranks) == 1:
        return in_gloo(scene, LogRemaining(Undecided.ONE_WAITER, ranks, op))
    if not distinct:
        return LogRemaining(Undecided.EQUAL_COUNTERS, ranks, op)
    waited = tuple(((rank,), Op("operation", number)) for rank, number in numbers.items())
    few = len(waited) == len(ranks) <= _SHOWN
    return LogRemaining(Undecided.WAITERS_ONLY, ranks, waited=waited if few else ())


def _asked_for(scene: Scene, waiters: Sequence[int]) -> int:
    """The rank that a line names as waited for, where it is none of these."""
    named = awaited(scene)
    return named if named not in waiters else -1


def _sizes(waits: Sequence[TimedOut]) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Who waited with how many elements, where they do not agree; of two or three sizes."""
    found: dict[int, list[TimedOut]] = {}
    for wait in waits:
        if wait.numel_in >= 0:
            found.setdefault(wait.numel_in, []).append(wait)
    if not 1 < len(found) <= _SHOWN:
        return ()
    return tuple((tuple(ranks_named(alike)), size) for size, alike in found.items())


def _in_which(
    waits: Sequence[TimedOut], ranks: Sequence[int]
) -> tuple[tuple[tuple[int, ...], Op], ...]:
    """Which of these ranks waited in which operation, where they are few and each has one."""
    found: dict[tuple[str, int], list[TimedOut]] = {}
    for wait in waits:
        found.setdefault((wait.op, wait.seq), []).append(wait)
    met = [rank for alike in found.values() for rank in ranks_named(alike)]
    if len(found) > _SHOWN or sorted(met) != sorted(ranks) or ("", -1) in found:
        return ()
    return tuple((tuple(ranks_named(alike)), op_of(alike)) for alike in found.values())


def _furthest_behind(waits: Sequence[TimedOut]) -> TimedOut | None:
    """The wait of the one rank in the lowest number, where all others are a little further: numbers far
    apart are of several groups, and say nothing of one another.
    """
    counted = [w for w in waits if w.rank >= 0 and w.seq >= 0 and not w.group]
    middle = sorted(w.seq for w in counted)[len(counted) // 2] if counted else -1
    near = [w for w in counted if abs(w.seq - middle) <= _NEAR]
    first: dict[int, TimedOut] = {}
    for wait in sorted(near, key=lambda w: w.seq, reverse=True):
        first[wait.rank] = wait
    if len(first) < _PAIR or len(first) < len(ranks_named(waits)):
        return None
    lowest = min(first.values(), key=lambda w: w.seq)
    alone = sum(w.seq == lowest.seq for w in first.values()) == 1
    return lowest if alone else None


def _unheard(waits: Sequence[TimedOut], ranks: Sequence[int]) -> tuple[int, ...]:
    """The few ranks below the highest of those that waited in one operation, of all ranks as far as
    it shows, which do not say it: a lead, no more.
    """
    others = tuple(sorted(set(range(max(ranks))) - set(ranks)))
    few = len(others) <= _SHOWN and len(others) < len(ranks)
    whole = {w.group for w in waits} <= {"", "0", "0(default_pg)", "default_pg"}
    sizes = {w.group_size for w in waits if w.group_size > 0}
    return others if few and whole and not sizes else ()


def _of_its_size(waits: Sequence[TimedOut], ranks: Sequence[int]) -> tuple[int, ...]:
    """The few ranks that are missing to as many as an operation has members, by its sizes: each member
    brings one part of what all get together.
    """
    sizes = {w.numel_out // w.numel_in for w in waits if _gathers(w.op, w.numel_in, w.numel_out)}
    sizes |= {w.numel_in // w.numel_out for w in waits if _gathers(w.op, w.numel_out, w.numel_in)}
    size = sizes.pop() if len(sizes) == 1 else 0
    whole = {w.group for w in waits} <= {"", "0", "0(default_pg)", "default_pg"}
    if not whole or size <= max(ranks) or size - len(set(ranks)) > _SHOWN:
        return ()
    return tuple(sorted(set(range(size)) - set(ranks)))


def _gathers(op: str, part: int, whole: int) -> bool:
    return op in _PARTED and 0 < part < whole and whole % part == 0


def _in_the_same(scene: Scene, waits: Sequence[TimedOut]) -> list[Counted]:
    """Who waited in the operation of these, by its counters; its own line may be missing."""
    same = {(wait.seq, wait.group) for wait in waits if wait.seq >= 0}
    whole = {seq for seq, group in same if not group}  # the line of a wait has no group
    return [
        f
        for f in scene.of(Counted)
        if f.rank >= 0
        and ((f.at_work, f.group) in same or (f.at_work in whole and f.group.startswith("0")))
    ]


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
    return waited or any(isinstance(f, KnownError) and f.rule == _WATCHDOG for f in facts)
