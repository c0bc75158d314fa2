"""What the process whose end is known printed before it: its own reason, in words that no rule knows, or that
a call or a connection of its own had failed, which mostly follows from another's end or from the network.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from msgspec import structs

from ...model.log_ends import BY_ITSELF
from ...model.log_facts import AnyFact, Ended, KnownError, UnreadFailure
from ...text.late import late
from ..findings.log_stories import FailedFirst, LoggedDeath
from . import reported
from .candidate import Error, First, is_named
from .error_findings import filled
from .first_error import ATP
from .same_second import add_same_second
from .scene import NCCL_WARNED, Scene
from .unread_failures import NEAR_END, without_tags

_ITS_STACK = "Its stack is in the log below {place}, the innermost function last: who called MPI_Abort there, and why, says the source."
_PLAIN = 2  # strength of a plain word of failure
_ABOVE = 10  # lines above a call of MPI_Abort
_RIGHT = 4  # lines above that of a crash
# Open MPI's block on the signal itself
_OF_SIGNAL = late(r"Signal(?: code)?: |Failing at address|\*\*\* ")
_SAYS_ERROR = late(r"\W{0,8}error\b", re.I)
_SAYS_NOTHING = ("terminated", "asyncio_cancelled", "worker_of_rank", "ray_killed")  # rules


def add_last_words(scene: Scene, death: First) -> None:
    """Its own line before its end, or the only one that names no process."""
    story = death.finding.story
    if isinstance(story, FailedFirst) and death.finding.kind == "dead":
        _add_to_report(scene, death, story)
    elif isinstance(story, LoggedDeath) and not (story.memory or story.left):
        _add_to_end(scene, death, story)


def _add_to_report(scene: Scene, death: First, story: FailedFirst) -> None:
    if not reported.add_own_words(scene, death, story):
        _add_right_before(scene, death, story)
        add_same_second(scene, death)


def _add_to_end(scene: Scene, death: First, story: LoggedDeath) -> None:
    if story.end.code == 0 and not story.aborted:
        return
    end = death.facts[0]
    said = _own_words(scene, death, end, silent=story.end.code == -signal.SIGKILL)
    itself = story.aborted or (story.end.code or 0) > 0
    known = _known_above(scene, death, end) if story.aborted else None
    if known is not None and not any(f.rank >= 0 for f in said):
        _add_known(scene, death, story, known)
        return
    alike = [] if said else _said_by_all(scene, story, death)
    if alike:
        quote = scene.quote(alike[0], alike[0].text)
        death.finding.story = structs.replace(story, said=quote, alike=alike[0].times)
        death.finding.kind, death.facts = "error", [*alike, *death.facts]
        return
    if said:
        often = said[0].times if not is_named(said[0]) else 1
        above = said[0].rank < 0 and (said[0].strength < _PLAIN or often > len(death.facts))
        quote = scene.quote(said[0], said[0].text)
        death.finding.story = structs.replace(story, said=quote, above=above, times=often)
        death.facts = [*death.facts, *said]
        if itself and not above:
            death.finding.kind = "error"  # its end only follows from that
            death.facts = [*said, *(f for f in death.facts if f not in said)]
        return
    if _add_beside(scene, death, story, end):
        return
    failed = _failed_before(scene, death, end)
    if failed is not None and itself:
        clause = _clause(scene, failed)
        death.finding.story = structs.replace(story, after=scene.quote(failed, clause))
        death.facts = [failed, *death.facts]
        if failed.values.get("inner"):
            death.finding.kind = "error"  # no other process can be behind it


def _add_right_before(scene: Scene, crash: First, story: FailedFirst) -> None:
    """What a process printed in the lines above that of its crash: it may be the reason, or not."""
    lines = {(f.file, f.line) for f in crash.facts}
    speakers = {(f.file, f.rank, f.pid) for f in crash.facts if isinstance(f, KnownError)}
    if len({pid for _, _, pid in speakers if pid}) > 1:
        return  # several, and whose words these are does not show
    for fact in scene.unread:
        near = any(file == fact.file and 0 < line - fact.line <= _RIGHT for file, line in lines)
        own = any(
            file == fact.file and (fact.rank == rank >= 0 or fact.pid == pid > 0)
            for file, rank, pid in speakers
        )
        says = without_tags(fact.text)
        if near and own and not fact.general and _OF_SIGNAL.match(says) is None:
            crash.finding.story = structs.replace(story, said=scene.quote(fact, says))
            return


def _own_words(scene: Scene, death: First, end: AnyFact, silent: bool) -> list[UnreadFailure]:
    """Whose they are shows by the rank; a process that was killed could not print anything over that."""
    ends = {f.line for f in scene.of(Ended) if f.file == end.file}
    last = max(f.line for f in death.facts)
    before = [f for f in scene.unread if f.file == end.file and f.began < end.line]
    before = [f for f in before if f.line <= last and f.line not in ends]
    clear = [f for f in before if not (f.general or f.between or f.launcher)]
    own = [f for f in clear if f.rank >= 0 and f.rank in death.finding.ranks]
    own = own or _own_errors(before, death.finding.ranks)
    unnamed = [f for f in clear if not is_named(f) and end.line - f.line <= NEAR_END]
    one = len({f.text for f in clear}) == 1
    return own or (unnamed[:1] if one and not silent else [])


def _own_errors(before: Sequence[UnreadFailure], ranks: Sequence[int]) -> list[UnreadFailure]:
    """The lines that say error of these ranks, however little they say of which."""
    own = [f for f in before if f.rank >= 0 and f.rank in ranks and f.general]
    own = [f for f in own if not (f.between or f.launcher or f.end)]
    return [f for f in own if _SAYS_ERROR.match(f.text) is not None]


def _add_beside(scene: Scene, death: First, story: LoggedDeath, end: AnyFact) -> bool:
    """What a library of its process had warned of before a crash, or the stack of its own abort; whether
    there is one.
    """
    warned = _warned_before(scene, end) if story.end.code in BY_ITSELF else None
    if warned is not None:
        quote = scene.quote(warned, _clause(scene, warned))
        death.finding.story = structs.replace(story, after=quote)
        death.facts = [*death.facts, warned]
        return True
    stack = _stack_of_abort(scene, death) if story.aborted else None
    if stack is not None:
        advice = _ITS_STACK.format(place=f"{scene.logs.files[stack.file].name}:{stack.line}")
        death.finding.story = structs.replace(story, advice=advice)
        death.facts = [*death.facts, stack]
        return True
    return False


def _known_above(scene: Scene, death: First, end: AnyFact) -> KnownError | None:
    """The error that a program of a known kind printed right above, without a rank: who calls MPI_Abort
    next has printed it.
    """
    above = [f for f in scene.of(KnownError) if f.file == end.file and f.rank < 0]
    near = [f for f in above if 0 < end.line - f.line <= _ABOVE]
    own = [f for f in near if f.role == "cause" and not (f.survived or f.logged)]
    texts = scene.logs.rules
    plain = [f for f in own if f.rule in texts and texts[f.rule].kind == "error"]
    plain = [f for f in plain if not texts[f.rule].between and not (f.pid or f.node or f.worker)]
    return plain[-1] if plain else None


def _add_known(scene: Scene, death: First, story: LoggedDeath, known: KnownError) -> None:
    """That error, and its end, which only follows from it."""
    quote = scene.quote(known, filled(scene.logs.rules[known.rule].meaning, known))
    advice = filled(scene.logs.rules[known.rule].advice, known)
    death.finding.story = structs.replace(story, after=quote, advice=advice)
    death.finding.kind = "error"
    death.facts = [known, *death.facts]


def _said_by_all(scene: Scene, story: LoggedDeath, death: First) -> list[UnreadFailure]:
    """The one line without a name that stands in the log as often as processes called MPI_Abort, below the
    first call, too: what they print may come late.
    """
    called = story.others + len(death.finding.ranks)
    end = death.facts[0]
    if not story.aborted or called < 2:
        return []
    near = [f for f in scene.unread if f.file == end.file and abs(f.line - end.line) <= NEAR_END]
    clear = [f for f in near if not (f.general or f.between or f.launcher or is_named(f))]
    ends = {f.line for f in scene.of(Ended) if f.file == end.file}
    words = [f for f in clear if f.line not in ends and "mpi_abort" not in f.text.lower()]
    alike = [f for f in words if f.times == called]
    return alike if len(alike) == 1 else []


def _warned_before(scene: Scene, end: AnyFact) -> KnownError | None:
    """What a library had warned of in a process that crashed then, by its number."""
    words = [f for f in scene.of(KnownError) if f.rule == NCCL_WARNED and not f.survived]
    pid = end.pid if isinstance(end, Ended) else 0
    own = [f for f in words if f.pid == pid > 0 and f.file == end.file and f.line < end.line]
    return own[-1] if own else None


def _stack_of_abort(scene: Scene, death: First) -> KnownError | None:
    """The stack that Cray's ATP printed of the one rank that called MPI_Abort."""
    ranks = death.finding.ranks
    stacks = [f for f in scene.of(KnownError) if f.rule == ATP and [f.rank] == ranks]
    return stacks[0] if stacks else None


def _failed_before(scene: Scene, death: First, end: AnyFact) -> Error | None:
    """The first line of its own by which a call or a connection of its own had failed."""
    ranks = set(death.finding.ranks)
    known = [f for f in scene.facts if isinstance(f, Error)]
    own = [f for f in known if f.rank in ranks and f.file == end.file and f.line < end.line]
    said = [f for f in own if f.rule in scene.logs.rules and f.rule not in _SAYS_NOTHING]
    said = [f for f in said if f.role in ("cause", "consequence") and not f.survived]
    return said[0] if said else _only_line_before(scene, known, end)


def _only_line_before(scene: Scene, known: Sequence[Error], end: AnyFact) -> Error | None:
    """The only line without a name that says of a failed call, above the only end that the logs have."""
    ends = [f for f in scene.of(Ended) if f.code]
    above = [f for f in known if f.file == end.file and 0 < end.line - f.line <= NEAR_END]
    above = [f for f in above if f.rule in scene.logs.rules and f.rule not in _SAYS_NOTHING]
    words = [f for f in above if f.role == "consequence" and not f.survived]
    nameless = [f for f in words if not is_named(f)]
    alone = len(nameless) == len(words) == 1 and len(ends) == 1
    return nameless[0] if alone and nameless[0].times == 1 else None


def _clause(scene: Scene, failed: Error) -> str:
    """What had failed; a reason that no other process can be behind, without what else calls fail for."""
    inner, call = failed.values.get("inner"), failed.values.get("call")
    if inner and call:
        return f"its call of {call} failed: {inner}"
    return filled(scene.logs.rules[failed.rule].meaning, failed)
