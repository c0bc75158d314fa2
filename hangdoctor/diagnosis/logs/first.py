"""What failed first: a node, a device, a process, a rank's own exception, before the first wait
that reached its limit.

Whatever follows from another process's end names no rank: a closed connection, a watchdog's abort, a
process that the launcher ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from ...model.log_facts import (
    EXIT_LIST,
    AnyFact,
    Cancelled,
    Ended,
    KnownError,
    NodeLost,
    OomKill,
    PythonError,
    RuleText,
)
from ...text.ranges import parse_hosts
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_stories import FailedFirst, LinkBroken, LoggedDeath, NodeFailed, Someone
from ..findings.named import End
from .scene import Scene, ranks_named
from .swept import after_the_stop, first_by_clock, is_sweep, with_those_that_failed_too

_FATAL = frozenset({-4, -7, -8, -9, -11})  # not SIGABRT and SIGTERM: those are mostly others' doing
_ABORTS = frozenset({-6, 134})
_PARENTS = (
    "spawn",
    "lightning",
    "mpirun",
    "composer",
)  # they end all others at once when they see the first end
_SOON_S = 90.0  # an error so long before a death is no consequence of it


class First(Struct):
    """A candidate, and the facts that show it."""

    finding: Finding
    facts: list[AnyFact]
    named: bool  # ranks or nodes are known


def lost_node(scene: Scene) -> First | None:
    """Slurm's word on nodes: `Node failure on n12`; "ON n3" of a cancelled step names none."""
    lost = scene.of(NodeLost)
    facts: list[AnyFact] = [*lost]
    if not lost:
        facts += [f for f in scene.of(Cancelled) if "NODE FAIL" in f.why]
    if not facts:
        return None
    lists = [text for fact in lost for text in fact.nodes]
    nodes = sorted({node for text in lists for node in parse_hosts(text)})
    ranks = sorted(r for r, n in scene.homes.items() if n in nodes)
    by = lost[0].by if lost else "Slurm"
    finding = Finding(
        kind="unreachable",
        ranks=ranks,
        story=NodeFailed(tuple(nodes), by=by),
        confidence=sure(Ground.LOG_NODE if nodes else Ground.LOG_SOME_NODE),
        nodes=nodes,
    )
    return First(finding, facts, bool(nodes))


def failure(scene: Scene) -> First | None:
    """The first of errors and deaths; None where the log holds consequences only."""
    error, death = _first_error(scene), _first_death(scene)
    if error is None or death is None:
        return error or death
    if _only_warned(error.facts):
        return death
    if error.finding.kind == "mismatch" and _aborts_only(death):
        return error  # the library ends whichever rank receives what it does not expect
    if isinstance(error.facts[0], PythonError | KnownError) and is_sweep(scene, error.facts[0]):
        return error
    same = bool(set(error.finding.ranks) & set(death.finding.ranks))
    if same or not death.named:
        return error if error.named or not death.named else death
    if isinstance(death.finding.story, LoggedDeath) and _rather_death(error, death):
        return death
    return error


def _aborts_only(death: First) -> bool:
    ends = [f for f in death.facts if isinstance(f, Ended)]
    return bool(ends) and all(f.code in _ABORTS for f in ends)


def _rather_death(error: First, death: First) -> bool:
    """A process that was killed did not wait for another's exception: unless that came well before,
    or is one that no neighbour's end explains.
    """
    earlier, later = error.facts[0], death.facts[0]
    if not error.named:
        return True
    known = isinstance(earlier, PythonError | KnownError) and earlier.rule
    if known or later.at <= 0 or earlier.at <= 0:
        return not known
    return later.at - earlier.at < _SOON_S


# ---------------------------------------------------------------------- errors


def _first_error(scene: Scene) -> First | None:
    candidates = _candidates(scene)
    # A line that says which rank, device or file is worth more than one without a name at the same
    # time, and the last line of a traceback more than a traceback that was cut.
    chosen = [f for f in candidates if not _was_cut(f)] or candidates
    chosen = [f for f in chosen if not _only_warned([f])] or chosen
    if not chosen or (_only_warned(chosen) and not _troubled(scene)):
        return None
    first = chosen[0]
    if _between(scene, first) and not _dated(first):
        first = next((f for f in chosen if not _between(scene, f)), first)
    found = of_errors(scene, first, [f for f in chosen if _same(first, f)])
    return _and_others(scene, found)


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
    return found


def _only_warned(facts: Sequence[AnyFact]) -> bool:
    """Whether all that is told are warnings, which a program prints and goes on."""
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
    return position < scene.first_wait or _unordered(scene, fact)


def _unordered(scene: Scene, fact: AnyFact) -> bool:
    """Nothing shows that it came after the first wait: another file, and no stamp."""
    if scene.first_wait >= len(scene.facts):
        return True
    wait = scene.facts[scene.first_wait]
    return fact.at <= 0 and fact.file != wait.file


def _same(one: AnyFact, other: AnyFact) -> bool:
    if isinstance(one, PythonError) and isinstance(other, PythonError):
        return (one.error, one.rule, _line(one)) == (other.error, other.rule, _line(other))
    rules = {getattr(one, "rule", ""), getattr(other, "rule", "")}
    return len(rules) == 1 and "" not in rules


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
    # Who receives what does not fit is one side of it, and mostly the one that made the right call.
    ranks = [] if text.kind == "mismatch" else ranks_named(alike)
    nodes = [] if text.kind == "mismatch" else scene.places(ranks, alike)
    raised = first if isinstance(first, PythonError) else PythonError(message=first.says)
    story = FailedFirst(
        error=raised.error,
        message=raised.message,
        meaning=text.meaning,
        advice=text.advice,
        someone=someone(first),
        nodes=tuple(nodes),
        went_on=_only_warned([first]),
    )
    ground = Ground.LOG_ERROR if ranks else Ground.LOG_ERROR_SOMEONE
    if story.went_on:
        ground = Ground.LOG_WARNED
    if raised is first and not raised.error:
        ground = Ground.LOG_ERROR_CUT
    finding = Finding(
        kind=text.kind,  # type: ignore[arg-type]
        ranks=ranks,
        story=story,
        confidence=sure(ground),
        nodes=nodes,
        frame=raised.frame,
    )
    finding.where.frame = str(raised.frame) if raised.frame is not None else None
    return First(finding, [*alike], bool(ranks or nodes))


def _of_link(text: RuleText, alike: Sequence[PythonError | KnownError]) -> First:
    """Who says that a connection failed is only one end of it."""
    told = [f.values for f in alike if isinstance(f, KnownError)]
    peers = sorted({v.get("peer") or v.get("to") or "" for v in told} - {""})
    by = tuple(ranks_named(alike))
    finding = Finding(
        kind=text.kind,  # type: ignore[arg-type]
        ranks=[],
        story=LinkBroken(by, tuple(peers), text.meaning, text.advice),
        confidence=sure(Ground.LOG_LINK),
        nodes=peers,
    )
    return First(finding, [*alike], False)


def someone(fact: AnyFact) -> Someone:
    """What is known of a speaker without a rank."""
    if fact.rank >= 0:
        return Someone()
    return Someone(fact.local, fact.task, fact.pid, fact.worker)


# ---------------------------------------------------------------------- deaths


def _first_death(scene: Scene) -> First | None:
    deaths = [f for f in scene.of(Ended) if _is_own_death(scene, f)]
    kills = scene.of(OomKill)
    if not deaths:
        return _killed_for_memory(scene, kills) if kills else _silent_exit(scene)
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
    return First(finding, [*alike, *kills], known)


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
    return other.code == first.code and (dated or other.line == first.line)


def _is_own_death(scene: Scene, fact: Ended) -> bool:
    """Killed, and not by the launcher, nor in the abort after a time-out."""
    if fact.by == EXIT_LIST:
        return _all_others_lost_it(scene, fact)
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
    if fact.code == -9 and _all_killed(scene):
        return False
    return not _by_launcher(scene, fact) and not _after_first_wait(scene, fact)


def _all_others_lost_it(scene: Scene, death: Ended) -> bool:
    """Whether it alone was killed, without a word, and all others lost a connection: in a list of
    exit codes a launcher's own kills look the same.
    """
    killed = {f.rank for f in scene.of(Ended) if f.by == EXIT_LIST}
    spoke = {f.rank for f in scene.of(PythonError)}
    lost = {v.rank for v in scene.victims() if v.rule == "peer_closed"}
    others = set(scene.everyone) - {death.rank}
    return killed == {death.rank} and death.rank not in spoke and bool(others) and others <= lost


def _all_killed(scene: Scene) -> bool:
    """Whether every rank of a job of known size was killed: from outside, then, and none first."""
    killed = {f.rank for f in scene.of(Ended) if f.code == -9}
    return scene.whole and len(scene.everyone) > 1 and killed >= set(scene.everyone)


def _by_launcher(scene: Scene, fact: Ended) -> bool:
    """Whether its launcher killed it because another process had ended."""
    if fact.by.startswith("slurm"):
        return _after_an_exit(scene, fact) or after_the_stop(scene, fact)
    # Lightning kills all others, itself too, once one has ended.
    return fact.by == "shell" and any(f.by == "lightning" for f in scene.of(Ended))


def _was_seen(fact: Ended) -> bool:
    """By the parent that watched all ranks of a node: it knows the order, logs guess it."""
    return fact.by.startswith("hangdoctor")


def _is_seen_elsewhere(scene: Scene, fact: Ended) -> bool:
    """Whether `hangdoctor run` saw the same end: its account decides, a log guesses the order."""
    seen = [f for f in scene.of(Ended) if _was_seen(f)]
    return any(f.rank == fact.rank >= 0 or f.pid == fact.pid > 0 for f in seen)


def _after_an_exit(scene: Scene, fact: Ended) -> bool:
    """srun kills the tasks that are left when one has failed."""
    return any(
        o.by.startswith("slurm") and o.code > 0 and (o.file, o.line) < (fact.file, fact.line)
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
    if not quiet or not _was_first(scene, quiet[0]):
        return None
    first = quiet[0]
    silent = not scene.of(PythonError)
    if silent and first.code > 0 and _was_seen(first) and len(quiet) > 1:
        return None  # at one moment, and none has left a word
    together = first.by.startswith("slurm") or first.code == 0
    return _exited_first(scene, first, ranks_named(quiet) if together else [first.rank])


def _exited_first(scene: Scene, first: Ended, ranks: list[int]) -> First:
    finding = Finding(
        kind="dead",
        ranks=ranks,
        story=LoggedDeath(End(first.code), left=first.left),
        confidence=sure(Ground.LOG_EXIT),
        nodes=scene.nodes(ranks),
    )
    return First(finding, [first], True)


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
    if fact.by.startswith("slurm") or _was_seen(fact) or fact.by in _PARENTS:
        return True
    return any(victim.rank != fact.rank for victim in scene.victims())


def _first_of_srun(scene: Scene) -> list[Ended]:
    """The tasks that exited with an error, where srun ended all others for it."""
    ends = [f for f in scene.of(Ended) if f.by.startswith("slurm") and f.rank >= 0]
    first = [f for f in ends if (f.file, f.line) == (ends[0].file, ends[0].line)]
    codes = {f.code for f in ends if f not in first}
    ended_for_it = bool(codes) and codes <= {-9, -15}
    return first if ended_for_it and all(f.code > 0 for f in first) else []


def quotes(facts: Iterable[AnyFact], most: int = 4) -> list[AnyFact]:
    """The facts that are shown as evidence: one of each speaker."""
    seen: set[tuple[int, str]] = set()
    kept: list[AnyFact] = []
    for fact in facts:
        key = (fact.rank, fact.node)
        if key not in seen:
            seen.add(key)
            kept.append(fact)
    return kept[:most]
