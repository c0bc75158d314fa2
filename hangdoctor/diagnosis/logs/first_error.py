"""The first exception or known error of a log that is no consequence of another process's end."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import structs

from ...model.log_facts import (
    MPI_ABORT,
    AnyFact,
    Ended,
    KnownError,
    PeerClosed,
    PythonError,
    RuleText,
    TimedOut,
)
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_stories import FailedFirst, LinkBroken, Someone
from . import lost_devices, shared_gpus
from .alive_after_all import without_the_living
from .candidate import First, someone
from .cut_tracebacks import is_explained
from .listened import with_its_host
from .no_rank import without_rank
from .one_of_them import (
    CRASHES,
    can_have_said,
    crashed_too,
    exited_alike,
    further_stacks,
    said_by_more,
)
from .relayed import relayed
from .scene import WAITS, Scene, nodes_named, ranks_named
from .swept import with_those_that_failed_too
from .threads import may_have_hung, of_thread

_MESH = "gloo_mesh"  # a rule
_ONLY_AT_ENDS = ("error_line", "hdf5")  # others
_AT_EXITS = ("heap_broken", "cxx_pure_virtual")  # others, which tidying up brings about, too
_LEFT = "mpi_left"  # another one
ATP = "atp"  # another one
_NAN = "nan_guard"  # another one
_ONE_MOMENT_S = 2.0
_ASKED = (-15, 143)
_PAGE_FAULT = "gpu_page_fault"  # another one
_OF_ACTORS = ("actor_died", "actor_creation")  # other ones
_REPORTS = (
    "spark_task",
    "actor_creation",
)  # rules of a launcher's word on a process, worth less than its own error
_REPEATED = re.compile(r" ?\[repeated (\d{1,6})x across cluster\]")  # Ray's
_VALUE = re.compile(r"\{(:? ?)([a-z_]{1,20})\}")
# Rules of what drivers and kernels say of a device of their node
_DEVICE = re.compile(r"(?:xid(?!_app)|gpu_lost$|pcie_|kernel_efa$)")
_CHILD = "child_ended"  # a rule: a parent's word on how a process ended, which does not say why
_MESH_SAYS = "Gloo connectFullMesh failed"
# Rules of errors whose lines name devices, or ranks, other than who says so.
_OF_DEVICES = {
    lost_devices.RULE: lost_devices.lost_devices,
    shared_gpus.RULE: shared_gpus.shared_gpus,
}


def first_error(scene: Scene) -> First | None:
    """The earliest of the errors that can have come first, with those like it."""
    candidates = _candidates(scene)
    # A line that says which rank, device or file is worth more than one without a name at the same
    # time, and the last line of a traceback more than a traceback that was cut.
    chosen = [f for f in candidates if not _was_cut(f)] or candidates
    chosen = [f for f in chosen if not only_warned([f])] or chosen
    chosen = [f for f in chosen if not of_thread(f)] or chosen  # the process goes on without it
    chosen = [f for f in chosen if f.rule not in _REPORTS] or chosen
    chosen = [f for f in chosen if relayed(f) is None] or chosen
    if not chosen or (only_warned(chosen) and not _troubled(scene)):
        return None
    first = chosen[0]
    if _between(scene, first) and not _dated(first):
        first = next((f for f in chosen if not _between(scene, f)), first)
    alike = [f for f in chosen if _same(first, f) and not _reported_later(scene, first, f)]
    found = of_errors(scene, first, alike)
    return _and_others(scene, without_the_living(scene, with_its_host(scene, found)))


def _reported_later(scene: Scene, first: AnyFact, other: AnyFact) -> bool:
    """Whether others had lost a connection before a launcher reports the end of a further process: that end is
    no equal of the first one, it may follow from it.
    """
    reports = isinstance(other, KnownError) and other.rule in _OF_ACTORS and other.pid > 0
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


def _candidates(scene: Scene) -> list[PythonError | KnownError]:
    """The errors that can have come first, in their order."""
    found = []
    for position, fact in scene.positioned(PythonError, KnownError):
        assert isinstance(fact, PythonError | KnownError)
        if _can_be_first(scene, position, fact):
            found.append(fact)
    return [f for f in found if f.rule != _CHILD] or found


def only_warned(facts: Sequence[AnyFact]) -> bool:
    """Whether all of them are warnings, which a program prints and goes on."""
    return all(isinstance(f, KnownError) and f.logged for f in facts)


def _troubled(scene: Scene) -> bool:
    """Whether a rank waited in vain, lost a connection, or ended badly."""
    waited = scene.first_wait < len(scene.facts)
    return waited or bool(scene.victims()) or any(f.code for f in scene.of(Ended))


def _was_cut(fact: PythonError | KnownError) -> bool:
    """Whether a traceback's last line, which has the error's name, is missing."""
    return isinstance(fact, PythonError) and not fact.error


def _between(scene: Scene, fact: PythonError | KnownError) -> bool:
    """Whether it lies between its speaker and another process."""
    text = scene.logs.rules.get(fact.rule)
    return text is not None and text.between


def _dated(fact: AnyFact) -> bool:
    return fact.at > 0 and not fact.inherited


def _can_be_first(scene: Scene, position: int, fact: PythonError | KnownError) -> bool:
    if fact.role != "cause" or fact.survived:
        return False
    if fact.rule in _ONLY_AT_ENDS and not _ended_badly(scene, fact):
        return False
    if of_thread(fact) and not may_have_hung(scene, position):
        return False
    if fact.rank < 0 and _was_aborted_before(scene, fact):
        return False
    if fact.rule == ATP and fact.rank in {f.rank for f in scene.of(Ended) if f.by == MPI_ABORT}:
        return False  # the stack of its own abort
    if fact.rule in _AT_EXITS and _had_lost_before(scene, position):
        return False
    if fact.rule == _LEFT and _aborted_by_then(scene, fact):
        return False  # it, or another one, had ended the job, which is how it left
    if fact.pid > 0 and fact.rule == "actor_died" and fact.pid in _timed_out(scene):
        return False  # its own watchdog ended it
    if _was_cut(fact) and is_explained(scene, position, fact):
        return False
    before = position < scene.first_wait or _unordered(scene, fact)
    return before or led_to_its_wait(scene, fact)


def _was_aborted_before(scene: Scene, fact: KnownError | PythonError) -> bool:
    """Whether a process crashed behind the line by which another one called MPI_Abort, which ends all."""
    text = scene.logs.rules.get(fact.rule)
    crash = text is not None and text.kind == "dead"
    aborts = [f for f in scene.of(Ended) if f.by == MPI_ABORT and f.file == fact.file]
    return crash and any(f.line < fact.line for f in aborts)


def _had_lost_before(scene: Scene, position: int) -> bool:
    """Whether a process had lost another one, or waited in vain, before: its way out shows such errors, too."""
    lost = [f for f in scene.facts[:position] if isinstance(f, PeerClosed | TimedOut)]
    said = [f for f in scene.victims() if f in scene.facts[:position]]
    return bool(lost or said)


def _aborted_by_then(scene: Scene, fact: AnyFact) -> bool:
    """Whether the rank called MPI_Abort, or another one had done so above this line."""
    aborts = [f for f in scene.of(Ended) if f.by == MPI_ABORT]
    above = [f for f in aborts if f.file == fact.file and f.line < fact.line]
    return bool(above) or any(f.rank == fact.rank for f in aborts)


def _ended_badly(scene: Scene, fact: KnownError | PythonError) -> bool:
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
        if one.rule and one.rule == other.rule and not (_dated(one) or _dated(other)):
            return (one.error, one.file) == (other.error, other.file)  # in no order
        if _raised_alike(one, other):
            return True
        return (one.error, one.rule, _line(one)) == (other.error, other.rule, _line(other))
    rules = {getattr(one, "rule", ""), getattr(other, "rule", "")}
    return len(rules) == 1 and "" not in rules


def _raised_alike(one: PythonError, other: PythonError) -> bool:
    """Whether two ranks raised one error in one place, and no clock shows which did first."""
    if not one.error or one.rank == other.rank or min(one.rank, other.rank) < 0:
        return False
    apart = _dated(one) and _dated(other) and abs(one.at - other.at) >= _ONE_MOMENT_S
    return not apart and one.error == other.error and _line(one) == _line(other) is not None


def _line(error: PythonError) -> tuple[str, int] | None:
    return (error.frame.name, error.frame.line) if error.frame is not None else None


def of_errors(
    scene: Scene, first: PythonError | KnownError, alike: Sequence[PythonError | KnownError]
) -> First:
    """The candidate that an error makes, with those like it."""
    text = scene.logs.rules.get(first.rule)
    if text is None:
        text = RuleText(meaning="")
    if text.between:
        return _of_link(text, alike)
    by_device = _OF_DEVICES.get(first.rule)
    named = by_device(scene, text, alike) if by_device is not None else None
    if named is not None:
        return named
    crashed = crashed_too(scene, alike)
    # Who receives what does not fit is one side of it, and mostly the one that made the right call.
    exited = exited_alike(scene, alike)
    every: list[AnyFact] = [*alike, *crashed.ends, *exited]
    ranks = [] if text.kind == "mismatch" else ranks_named(every)
    nodes = [] if text.kind == "mismatch" else scene.places(ranks, every)
    by = ranks_named(alike) if text.kind == "mismatch" else []
    raised = first if isinstance(first, PythonError) else PythonError(message=first.says)
    told = relayed(first) if first.rank < 0 else None
    if told is not None:
        raised = PythonError(message=told.error)
    repeated = max((int(m[1]) for f in alike for m in _REPEATED.finditer(f.says)), default=0)
    more = said_by_more(scene, alike) or len(crashed.nameless)
    repeated = max(repeated, more)
    speakers = [*alike, *further_stacks(scene, alike)]
    cards = {f.values.get("gpu") or f.values.get("card") for f in alike} - {None}
    if first.rule == _PAGE_FAULT and len(cards) > 1:
        repeated = len(cards) - 1  # of as many processes, and the lines of all are mixed
    story = FailedFirst(
        error=raised.error,
        message=_REPEATED.sub("", raised.message),
        meaning=filled(text.meaning, first) or (told.error if told is not None else ""),
        advice=filled(text.advice, first),
        someone=_who(scene, first, alike, speakers),
        nodes=tuple(scene.places(by, alike) if text.kind == "mismatch" else nodes),
        by=tuple(by),
        went_on=only_warned([first]),
        thread=raised.thread,
        others=len(ranks_named(exited)) or repeated,
        others_on=tuple(sorted(nodes_named(exited) or set(crashed.nameless))),
        spoke=tuple(ranks_named(alike)) if exited else (),
        together=len(ranks) > 1 and (first.rule in CRASHES or not first.rule),
        device=_DEVICE.match(first.rule) is not None and someone(first, alike) == Someone(),
    )
    places = {_line(f) for f in alike if isinstance(f, PythonError)}
    one_place = len(places) <= 1 and first.rule not in _OF_ACTORS  # that is of who asked for it
    frame = raised.frame if one_place else None
    ground = _ground(first, story, ranks, alike_elsewhere=more > 0 or bool(exited))
    is_named = bool(ranks or nodes)
    if not is_named and story.someone == Someone() and text.kind != "mismatch" and not story.device:
        ranks = can_have_said(scene, alike)
        nodes = scene.nodes(ranks)
        story = structs.replace(story, one_of=bool(ranks))
    finding = Finding(
        kind=text.kind,  # type: ignore[arg-type]
        ranks=ranks,
        story=story,
        confidence=sure(ground),
        nodes=nodes,
        frame=frame,
    )
    finding.where.frame = str(frame) if frame is not None else None
    return First(finding, every, is_named)


def _who(
    scene: Scene,
    first: PythonError | KnownError,
    alike: Sequence[PythonError | KnownError],
    speakers: Sequence[AnyFact],
) -> Someone:
    """Who has an error without a rank."""
    part = without_rank(scene, first, alike)
    if relayed(first) is not None and not first.worker:
        return Someone(worker_of=part.part if part is not None and part.part else "an engine")
    return part or someone(first, speakers)


def _ground(
    first: PythonError | KnownError, story: FailedFirst, ranks: Sequence[int], alike_elsewhere: bool
) -> Ground:
    """How sure it is."""
    if isinstance(first, PythonError) and not first.error:
        return Ground.LOG_ERROR_CUT
    if story.thread:
        return Ground.LOG_THREAD
    if story.went_on:
        return Ground.LOG_WARNED
    if story.together or alike_elsewhere:
        return Ground.LOG_ALIKE
    if ranks and first.rule == _NAN and not first.values.get("rank"):
        return Ground.LOG_CHECKED
    return Ground.LOG_ERROR if ranks else Ground.LOG_ERROR_SOMEONE


def filled(text: str, fact: AnyFact) -> str:
    """A rule's text with what its pattern took from the line in the place of `{name}`, or of `{ name}` and
    `{: name}`, which are left out where it took nothing.
    """
    values = fact.values if isinstance(fact, KnownError | PythonError) else {}

    def value(match: re.Match[str]) -> str:
        told = values.get(match[2])
        if told is None:
            return "" if match[1] else match[0]
        return match[1] + told

    return _VALUE.sub(value, text)


def mesh(scene: Scene) -> First | None:
    """gloo could not connect the ranks with one another, and nothing else is known."""
    known = [f for f in scene.of(KnownError) if f.rule == _MESH]
    raised = [f for f in scene.of(PythonError) if f.message.startswith(_MESH_SAYS)]
    text = scene.logs.rules.get(_MESH)
    if text is None or not known or scene.of(Ended):
        return None
    return _of_link(text, [*known, *raised])


def _of_link(text: RuleText, alike: Sequence[PythonError | KnownError]) -> First:
    """Who says that a connection failed is only one end of it."""
    peers = _told(alike, "peer") or _told(alike, "to")
    by = tuple(ranks_named(alike))
    hosts = tuple(sorted(nodes_named(alike)))
    finding = Finding(
        kind=text.kind,  # type: ignore[arg-type]
        ranks=[],
        story=LinkBroken(
            by, tuple(peers), filled(text.meaning, alike[0]), text.advice, hosts=hosts
        ),
        confidence=sure(Ground.LOG_LINK),
        nodes=sorted({*hosts, *peers}) if peers else [],  # neither end alone
    )
    return First(finding, [*alike], False)


def _told(alike: Sequence[PythonError | KnownError], name: str) -> list[str]:
    """What the lines say of the other end under this name, each once."""
    return sorted({fact.values[name] for fact in alike if fact.values.get(name)})
