"""Of ranks that waited until a limit, the one that before it printed a line as no other rank did;
what a rank that is named printed last; and whether all ranks said that they give up, or that they
are done.

What a program prints is a lead to what it called, and no more: any other reason goes before it.
"""

from __future__ import annotations

import re
import signal

from ...model.diagnosis import Kind
from ...model.log_facts import (
    NAN_GUARD,
    AnyFact,
    Ended,
    KilledByLauncher,
    KnownError,
    OwnLine,
    PeerClosed,
    PythonError,
    TimedOut,
)
from ...text.late import late
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_places import PrintedOtherwise
from ..findings.log_remaining import PrintedApart
from ..findings.log_stories import LoggedDeath
from .candidate import First
from .scene import Scene, ranks_named

_LEAVES = late(
    r"\b(?:giv(?:e|es|ing) up|exit\w*|quit\w*|leav(?:e|es|ing)|bye|abort\w*|stop(?:s|ped|ping)?|terminat\w+|shut\w* down"
    r"|ERROR|FATAL|CRITICAL|exceeded|exhausted|used up)\b"
)
_AT_WORK = 5  # lines of one kind
_FURTHER = 10  # lines
_DIGITS = late(r"\d+")
# All of it behind what a logger puts before: "model loading done" is said of a part, after which a job may hang
_SAYS_END = late(
    r"(?:^|[│|:\]>]|\b(?:INFO|NOTICE|DEBUG)\b)\s*"
    r"(?:(?:all|everything|training|run|job|program|work|(?:rank|process|worker|stage) ?\d{1,6})\s)?(?:(?:is|has|was|are)\s)?"
    r"(?:done|finished|fine|bye|goodbye|completed?|ended|over|exiting)(?:\ssuccessfully)?[.!\s]*$",
    re.I,
)
# What ranks that agree to stop say in turn, the one that failed as well
_AGREED_TO_STOP = late(
    r"\b(?:sav(?:e|es|ing)|emergency|checkpoint\w*|stopp?\w*|shut\w*|exit\w*|abort\w*|terminat\w*|leav\w+|clean\w*)\b",
    re.I,
)
_NOT_FINITE = "not finite"
_MEANT = ("value", "left out")  # leads that say something also of ranks that go on


def alone_in_print(scene: Scene) -> First | None:
    """None where several ranks have such a line, or nothing shows that the job was stuck."""
    return _alone(scene) if scene.first_wait < len(scene.facts) else None


def _alone(scene: Scene) -> First | None:
    lines = _to_calls(scene)
    if scene.of(TimedOut):  # NCCL's watchdog aborts: of the last lines, some are lost in buffers
        lines = [line for line in lines if line.lead in _MEANT]
    if not _of_one_rank(lines):
        return None
    return _first(scene, "order", [lines[0].rank], lines[0], lines[0].lead)


def gone_by_its_print(scene: Scene) -> First | None:
    """The one whose last line says that it leaves, or that had left something out and so came to
    its end before the others, where all that these report is a lost connection.
    """
    if scene.first_wait < len(scene.facts) or not scene.of(PeerClosed):
        return None
    errors: list[KnownError | PythonError] = [*scene.of(KnownError), *scene.of(PythonError)]
    if any(error.role == "cause" and not error.survived for error in errors):
        return None
    lost = {*ranks_named(scene.of(PeerClosed)), *ranks_named(scene.victims())}
    lines = [line for line in _to_calls(scene) if line.rank not in lost]
    killed = [f for f in scene.of(Ended) if f.code in (-signal.SIGTERM, -signal.SIGKILL)]
    swept = {*ranks_named(scene.of(KilledByLauncher)), *ranks_named(killed)}
    printed = {line.rank for line in scene.printed if line.rank >= 0}
    lasts = [line for line in lines if line.lead == "last"]
    leaves = [
        one for one in lasts if _LEAVES.search(one.says) or printed - lost - swept == {one.rank}
    ]
    short = [line for line in lines if line.lead == "left out"]
    if not _of_one_rank(lines) or not (leaves or short):
        return None
    if leaves:
        return _first(scene, "dead", [leaves[0].rank], leaves[0], "leaves")
    return _first(scene, "order", [short[0].rank], short[0], "left out")


def all_gave_up(scene: Scene) -> First | None:
    """All ranks, where the last line of each is the same and says that it leaves, and one ended
    with an error code: a check that all make found what none of them alone may have brought.
    """
    if scene.first_wait < len(scene.facts) or not any(f.code > 0 for f in scene.of(Ended)):
        return None
    lines = _last_lines(scene)
    if not _are_alike(scene, lines) or not _LEAVES.search(lines[0].says):
        return None
    return _first(scene, "error", sorted({line.rank for line in lines}), lines[0], "all")


def alike_instead(scene: Scene, found: First) -> First | None:
    """All ranks instead of one that ended silently by an error code, where all gave up alike."""
    story = found.finding.story
    if not isinstance(story, LoggedDeath) or story.said or story.after:
        return None
    return all_gave_up(scene) if (story.end.code or 0) > 0 else None


def of_one_alone(scene: Scene, found: First) -> First | None:
    """The one rank that printed a number which is not finite, where the guards of several then
    stopped for it: they see what came of all ranks.
    """
    errors = [f for f in found.facts if isinstance(f, PythonError | KnownError)]
    guards = [f for f in errors if f.rule == NAN_GUARD]
    lines = [line for line in _leads(scene) if line.lead == _NOT_FINITE]
    if len(found.finding.ranks) < 2 or len(guards) < len(found.facts) or len(lines) != 1:
        return None
    named = _first(scene, "error", [lines[0].rank], lines[0], _NOT_FINITE)
    return First(named.finding, [lines[0], *found.facts], True)


def of_no_rank(scene: Scene, found: First) -> First:
    """What was found of ranks that do not show, with the rank whose lines show it."""
    finding = found.finding
    if finding.ranks or finding.kind != "mismatch":
        return found
    alone = _alone(scene)
    if alone is None:
        return found
    alone.finding.kind = finding.kind
    alone.facts = [*alone.facts, *found.facts]
    return alone


def apart_in_print(scene: Scene) -> PrintedApart | None:
    """The same as a lead only, of a job that may as well have gone on."""
    lines = [line for line in _leads(scene) if line.lead in _MEANT]
    if not _of_one_rank(lines):
        return None
    return PrintedApart(lines[0].rank, scene.quote(lines[0]), lines[0].usual)


def add_last_line(scene: Scene, found: First) -> None:
    """What the only rank that did not wait, or ended without a word on it, printed last."""
    finding = found.finding
    story = finding.story
    silent = isinstance(story, LoggedDeath) and story.said is None and story.after is None
    if len(finding.ranks) != 1 or not (finding.kind == "not_entered" or silent):
        return
    own = [line for line in _last_lines(scene) if line.rank == finding.ranks[0]]
    if own:
        finding.printed = scene.quote(own[-1])
        found.facts = [*found.facts, own[-1]]


def got_going(scene: Scene) -> bool:
    """Whether ranks printed lines of one kind again and again: the attempt was at work."""
    return any(line.again >= _AT_WORK for line in scene.printed)


def all_said_the_end(scene: Scene) -> bool:
    """Whether the last line of every rank is one that says so, and the same on all."""
    lines = _last_lines(scene)
    if not _are_alike(scene, lines):
        return False
    return _SAYS_END.search(lines[0].says) is not None


def spoke_on(scene: Scene, fact: AnyFact) -> bool:
    """Whether every rank printed one last line alike below it, of no agreement to stop: who had
    failed by that does not.
    """
    lines = _last_lines(scene)
    below = all(line.file == fact.file and line.line > fact.line for line in lines)
    return below and _are_alike(scene, lines) and not _AGREED_TO_STOP.search(lines[0].says)


def went_on_after(scene: Scene, fact: AnyFact) -> bool:
    """Whether the rank that says it, or each that prints where none does, went on for some lines,
    and its last one does not say that it leaves.
    """
    lasts = [line for line in _last_lines(scene) if line.file == fact.file]
    own = [line for line in lasts if line.rank == fact.rank] if fact.rank >= 0 else lasts
    below = all(line.line >= fact.line + _FURTHER for line in own)
    return len(lasts) > 1 and bool(own) and below and not any(_LEAVES.search(o.says) for o in own)


def _are_alike(scene: Scene, lines: list[OwnLine]) -> bool:
    """Whether these are one line of all ranks, but for its numbers, that none printed before."""
    shapes = {line.rank: _DIGITS.sub("#", line.says) for line in lines}
    alone = len(shapes) < 2 or -1 in shapes or any(line.again for line in lines)
    return not alone and len(set(shapes.values())) == 1 and set(shapes) >= set(scene.everyone)


def _leads(scene: Scene) -> list[OwnLine]:
    return [line for line in scene.printed if line.lead and line.rank >= 0]


def _to_calls(scene: Scene) -> list[OwnLine]:
    """Leads to what a rank called."""
    return [line for line in _leads(scene) if line.lead != _NOT_FINITE]


def _last_lines(scene: Scene) -> list[OwnLine]:
    return [line for line in scene.printed if not line.lead]


def _of_one_rank(lines: list[OwnLine]) -> bool:
    return len({line.rank for line in lines}) == 1


def _first(scene: Scene, kind: Kind, ranks: list[int], line: OwnLine, lead: str) -> First:
    """With the line as its evidence; what is usual is said of one rank, not of all."""
    at = f"{scene.logs.name_of(line.file)}:{line.line}"
    usual = line.usual if lead != "all" else ""
    finding = Finding(
        kind=kind,
        ranks=ranks,
        story=PrintedOtherwise(lead, line.says, at, usual),
        confidence=sure(Ground.LOG_PRINTED),
        nodes=scene.nodes(ranks),
    )
    return First(finding, [line], True)
