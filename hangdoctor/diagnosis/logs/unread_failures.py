"""Failures in words that no rule knows, where nothing else is known of why the job ended.

The first one of a process of its own counts; one that speaks of another process, or of a wait for
one, names no culprit; a launcher's word is worth the least.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ...model.log_facts import (
    AnyFact,
    Cancelled,
    Ended,
    Finished,
    KilledByLauncher,
    KnownError,
    PeerClosed,
    Progress,
    PythonError,
    Signalled,
    UnreadFailure,
)
from ...text.late import late
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_remaining import LogRemaining, Undecided
from ..findings.log_stories import (
    FailedFirst,
    FailedInWords,
    LinkBroken,
    LoggedDeath,
    PeerGone,
    Someone,
)
from .candidate import First, is_named, someone
from .error_findings import filled
from .printed_otherwise import spoke_on, went_on_after
from .scene import NCCL_WARNED, Scene, nodes_named, ranks_named
from .unread_whose import is_named_beside_aborts, ranks_by_process, whose, whose_or_how_many

NEAR_END = 60  # lines before the end of a log, in which a plain word of failure is its last one
_LAST_WORDS = 6  # ordinary lines of its speaker after it
_SAME_BLOCK = 12  # lines after a failure in which another one tells whose it was
_STACK = 40  # the same with nothing but a stack between them
_OPEN = (
    *(Undecided.NO_END, Undecided.GOES_ON, Undecided.LAUNCHER_ONLY, Undecided.ABORTS_ONLY),
    Undecided.CUT_IN_WAIT,
)
_FOLLOWING = (Undecided.FOLLOWED, Undecided.VICTIMS_ONLY, Undecided.STORE_GONE)
_TAGS = late(r"^(?:\[[^\[\]]{1,80}\]\s{0,20}){1,4}")
_MEANING = "a call, a wait or a connection failed, in words that are not known here"
_ADVICE = "Read the log of both ends around that line: did one of them fail before? If not, look at the network between them."


def in_unread_words(scene: Scene, why: LogRemaining) -> First | None:
    """What failed first, as such a line has it, where the reason `why` leaves that open."""
    if why.reason in _OPEN:
        plain = [f for f in scene.unread if f.strength > 1]
        found = [f for f in plain if _counts(scene, f, why.reason)]
    elif why.reason in _FOLLOWING:
        found = [f for f in scene.unread if _came_before(scene, f)]
        found = [f for f in found if tests_ended_before(scene, f) is None]
    elif why.reason is Undecided.SIGNALLED and _saw_one_fail(scene):
        found = [f for f in scene.unread if f.strength > 2 and _before_the_signal(scene, f)]
    else:
        return None
    first = _first(scene, found, why.reason)
    if first is not None or why.reason is not Undecided.FOLLOWED:
        return first
    return _of_stack(scene) or between_two(scene)


def _saw_one_fail(scene: Scene) -> bool:
    """Whether the launcher says that it ended the others since one had failed."""
    known: list[KnownError | PythonError] = [*scene.of(KnownError), *scene.of(PythonError)]
    return any(f.role == "launcher" and not f.survived for f in known)


def _before_the_signal(scene: Scene, fact: UnreadFailure) -> bool:
    """Whether a process failed by itself right above the line of a signal that ended another one."""
    own = not (fact.between or fact.launcher or fact.general or fact.end)
    same = [f.line for f in scene.of(Signalled) if f.file == fact.file]
    return own and bool(same) and 0 < min(same) - fact.line <= NEAR_END


def without_tags(text: str) -> str:
    """The line without the bracketed stamp, host and process at its beginning."""
    return _TAGS.sub("", text)


def is_cut(found: First) -> bool:
    """Whether all that is found is a traceback without its last line, of a rank that does not show."""
    story = found.finding.story
    cut = isinstance(story, FailedFirst) and not story.error and not story.meaning
    return cut and not found.named and isinstance(found.facts[0], PythonError)


def in_words_before(scene: Scene, cut: First) -> First | None:
    """The failure in unread words right before a cut traceback: it says what that one lacks."""
    begin = cut.facts[0]
    found = [
        f for f in scene.unread if f.file == begin.file and 0 < begin.line - f.line <= _SAME_BLOCK
    ]
    own = [f for f in found if not (f.launcher or f.general or f.between or f.end)]
    if own:
        return _first(scene, own)
    named = [f for f in found if is_named_beside_aborts(scene, f)]
    return _first(scene, named, Undecided.ABORTS_ONLY) if named else None


def named_beside(scene: Scene, aborts: First) -> First | None:
    """The failure of the one rank that the program names, where several ranks called MPI_Abort below it and none
    of them says why.
    """
    story = aborts.finding.story
    if not isinstance(story, LoggedDeath) or not story.aborted or story.said or story.after:
        return None
    end = aborts.facts[0]
    near = [f for f in scene.unread if f.file == end.file and 0 < end.line - f.line <= _SAME_BLOCK]
    named = [f for f in near if is_named_beside_aborts(scene, f)]
    return _first(scene, named, Undecided.ABORTS_ONLY) if named else None


def before_the_loss(scene: Scene, gone: First) -> First | None:
    """The failure of a process of its own right above the first line by which others lost a host: theirs only
    follows from it.
    """
    story = gone.finding.story
    if not isinstance(story, PeerGone):
        return None
    loss = gone.facts[0]
    near = [f for f in scene.unread if f.file == loss.file and f.strength > 2]
    near = [f for f in near if 0 < loss.line - f.line <= NEAR_END and not f.end]
    found = _first(scene, [f for f in near if _came_before(scene, f)], Undecided.FOLLOWED)
    if found is not None and isinstance(found.finding.story, FailedInWords):
        found.finding.story = structs.replace(found.finding.story, lost=story.peer)
        return found
    return None


def _of_stack(scene: Scene) -> First | None:
    """The reason at the end of the error stack of a call, where no other process can be behind it."""
    calls = [f for f in scene.of(KnownError) if f.values.get("inner") and not f.survived]
    if not calls:
        return None
    first = calls[0]
    alike = [f for f in calls if f.values["inner"] == first.values["inner"]]
    ranks = ranks_named(alike)
    story = FailedInWords(
        says=first.values["inner"],
        at=f"{_place(scene, first)}, the end of the stack of {first.values.get('call', 'its call')}",
        someone=Someone() if ranks else someone(first, alike),
    )
    finding = Finding(
        kind="error",
        ranks=ranks,
        story=story,
        confidence=sure(Ground.LOG_UNREAD if ranks else Ground.LOG_UNREAD_SOMEONE),
        nodes=scene.places(ranks, alike),
    )
    return First(finding, [*alike], bool(ranks))


def between_two(scene: Scene) -> First | None:
    """The first call that failed between a rank and another one that its line names, where the logs
    show nothing before it: it accuses neither.
    """
    words = [f for f in scene.of(KnownError) if f.role == "consequence" and not f.survived]
    calls = [f for f in words if f.values.get("peer") and f.rule in scene.logs.rules]
    if not calls or calls[0].rank < 0:
        return None
    first = calls[0]
    alike = [f for f in calls if f.values["peer"] == first.values["peer"] and f.rule == first.rule]
    peer = first.values["peer"]
    here = structs.replace(first, values={k: v for k, v in first.values.items() if k != "at"})
    story = LinkBroken(
        tuple(ranks_named(alike)),
        (f"rank {peer}" if peer.isdigit() else peer,),
        f"{filled(scene.logs.rules[first.rule].meaning, here)} ({_place(scene, first)})",
        _ADVICE,
        hosts=tuple(sorted(nodes_named(alike))),
        first_sign=True,
    )
    finding = Finding("in_communication", [], story, sure(Ground.LOG_LINK))
    return First(finding, [*alike], False)


def _counts(scene: Scene, fact: UnreadFailure, reason: Undecided) -> bool:
    """Whether the job's end is seen to follow from it, as far as a log shows that."""
    if reason is Undecided.ABORTS_ONLY and (fact.general or fact.launcher or fact.end):
        return is_named_beside_aborts(scene, fact)  # else what the codes of the processes say, too
    ends_open = reason in (Undecided.NO_END, Undecided.GOES_ON)
    if ends_open and (spoke_on(scene, fact) or went_on_after(scene, fact)):
        return False
    if fact.strength < 3 and scene.of(Finished):
        return False  # the program had ended: what fails then is its tidying up
    near = scene.logs.files[fact.file].lines - fact.line <= NEAR_END
    last = near and fact.after <= _LAST_WORDS
    if _ends_after(scene, fact):
        return True
    if reason is Undecided.GOES_ON and any(f.file == fact.file for f in scene.of(Progress)):
        return last and fact.strength > 2
    return last or fact.strength > 2


def _ends_after(scene: Scene, fact: UnreadFailure) -> bool:
    later = [f for f in scene.facts if f.file == fact.file and f.line > fact.line]
    return any(_is_end(f) for f in later)


def _is_end(fact: AnyFact) -> bool:
    if isinstance(fact, Ended):
        return fact.code != 0
    if isinstance(fact, KnownError | PythonError):
        return fact.role in ("launcher", "consequence") and not fact.survived
    return isinstance(fact, PeerClosed | Cancelled | KilledByLauncher)


def _came_before(scene: Scene, fact: UnreadFailure) -> bool:
    """Whether a process of its own failed before the line that only follows from a failure."""
    if fact.between or fact.launcher or fact.general:
        return False
    following = [f for f in scene.facts if _follows(f)]
    same = [f for f in following if f.file == fact.file]
    if not following:
        return True
    if same:
        return fact.line <= min(f.line for f in same)
    dated = [f.at for f in following if f.at > 0]
    return 0 < fact.at < min(dated, default=0.0)


def tests_ended_before(scene: Scene, fact: AnyFact) -> Finished | None:
    """The end of a run of tests that went well, before this line as far as it shows: what was tested is then
    stopped, and whoever goes last loses the others.
    """
    for end in (f for f in scene.of(Finished) if f.tests):
        same = end.file == fact.file
        dated = end.at > 0 and fact.at > 0
        if (same and end.line < fact.line) or (not same and (not dated or end.at <= fact.at)):
            return end
    return None


def _follows(fact: AnyFact) -> bool:
    if isinstance(fact, KnownError | PythonError):
        return fact.role == "consequence" and fact.rule != NCCL_WARNED
    return isinstance(fact, PeerClosed)


def _first(
    scene: Scene, found: Sequence[UnreadFailure], reason: Undecided = Undecided.NO_END
) -> First | None:
    """The likeliest, with those that say alike; None where they only say that something failed."""
    chosen = _chosen(found, reason)
    if not chosen:
        return None
    first = next((f for f in chosen if f.strength > 2), chosen[0])
    alike = [f for f in chosen if set(f.likeness) & set(first.likeness)]
    if first.between:
        return _of_link(scene, first, alike)
    told = _told_by_next(first, found) or _told_by_end(scene, first)
    ranks = ranks_named([told] if told is not None else alike) or ranks_by_process(scene, alike)
    alike = [told] if isinstance(told, UnreadFailure) else alike
    finding = Finding(
        kind="error",
        ranks=ranks,
        story=FailedInWords(
            says=first.text,
            at=_place(scene, first),
            someone=whose(alike) if told is not None else whose_or_how_many(scene, alike),
            launcher=first.launcher and told is None,
            named_later=told is not None,
        ),
        confidence=sure(Ground.LOG_UNREAD if ranks else Ground.LOG_UNREAD_SOMEONE),
        nodes=scene.places(ranks, alike),
    )
    return First(finding, [first, *(f for f in alike if f is not first)], bool(ranks))


def _chosen(found: Sequence[UnreadFailure], reason: Undecided) -> list[UnreadFailure]:
    """Those of the best kind that there is."""
    own = [f for f in found if not f.launcher]
    told = [f for f in own if not f.general]
    clear = [f for f in told if not f.end]
    beside_aborts = [f for f in own if f.general] if reason is Undecided.ABORTS_ONLY else []
    kinds = (
        [f for f in clear if not f.between],
        clear,
        beside_aborts,
        told,
        [f for f in found if f.launcher and is_named(f)],
        [f for f in found if f.launcher and not f.general],
    )
    return next((kind for kind in kinds if kind), [])


def _told_by_next(first: UnreadFailure, found: Sequence[UnreadFailure]) -> UnreadFailure | None:
    """The one line below that tells whose failure it was, as a launcher's word on who ended."""
    if is_named(first):
        return None
    below = [
        f
        for f in found
        if f.file == first.file and 0 < f.line - first.line <= _reach(first) and is_named(f)
    ]
    return below[0] if len(below) == 1 and (below[0].launcher or below[0].general) else None


def _reach(first: UnreadFailure) -> int:
    """How many lines below it its process may be named; a stack between them belongs to it."""
    return _SAME_BLOCK if first.after else _STACK


def _told_by_end(scene: Scene, first: UnreadFailure) -> Ended | None:
    """The only end with an error code that the logs have, where the line names no process."""
    ends = [f for f in scene.of(Ended) if f.code]
    if is_named(first) or not ends or len(ranks_named(ends)) != 1 or min(f.rank for f in ends) < 0:
        return None
    return ends[0]


def _of_link(scene: Scene, first: UnreadFailure, alike: Sequence[UnreadFailure]) -> First:
    """Who says that a call or a connection failed is one end of it."""
    peers = tuple(sorted({f.peer for f in alike if f.peer}))
    end = _told_by_end(scene, first)
    by = ranks_named([end] if end is not None else alike)
    speaker = whose(alike)
    story = LinkBroken(
        tuple(by),
        peers,
        f"{_MEANING}: '{first.text}' ({_place(scene, first)})",
        _ADVICE,
        hosts=tuple(sorted(nodes_named(alike))),
        process=speaker.pid,
        devices=speaker.devices,
        first_sign=True,
    )
    finding = Finding(
        kind="in_communication",
        ranks=[],
        story=story,
        confidence=sure(Ground.LOG_LINK),
        nodes=[peer for peer in peers if not peer[-1:].isdigit() or " " not in peer],
    )
    return First(finding, [*alike], False)


def _place(scene: Scene, fact: AnyFact) -> str:
    return f"{scene.logs.files[fact.file].name}:{fact.line}"
