"""Keeps the facts of all files, folded: what is said a thousand times is kept once, with a count."""

from __future__ import annotations

import msgspec

from ...model.log_facts import (
    AnyFact,
    Finished,
    KilledByLauncher,
    KnownError,
    LastWords,
    OomKill,
    Progress,
    PythonError,
    Took,
)
from ...text import redaction

_SAYS = 300  # characters of a line that are kept
_MOST = 20_000  # facts of one job
_WHERE = {
    "file",
    "line",
    "at",
    "inherited",
    "times",
    "says",
    "survived",
    "logged",
    "inside",
    "answered",
}


class Facts:
    """Facts in the order of reading, each kind of saying once."""

    def __init__(self) -> None:
        self.all: list[AnyFact] = []
        self.left_out = 0
        self._seen: dict[tuple[object, ...], AnyFact] = {}

    def add(self, fact: AnyFact) -> AnyFact:
        """Keep a fact, or count it where the same was said before; the fact that is kept."""
        key = _key(fact)
        known = self._seen.get(key)
        if known is not None:
            known.times += 1
            if isinstance(fact, Progress | LastWords):
                _move(known, fact)
            elif isinstance(known, Took) and isinstance(fact, Took):
                _prolong(known, fact)
            return known
        if len(self.all) >= _MOST:
            self.left_out += 1
            return fact
        fact.says = redaction.text(fact.says[:_SAYS].strip())
        self._seen[key] = fact
        self.all.append(fact)
        return fact


def _move(known: AnyFact, fact: Progress | LastWords) -> None:
    """A stream's progress is where it came to last, and its words are the last ones."""
    if isinstance(known, Progress) and isinstance(fact, Progress):
        known.moved = fact.line if fact.iteration > known.iteration else known.moved
        known.iteration, known.total = fact.iteration, fact.total
    known.line, known.at, known.inherited = fact.line, fact.at, fact.inherited
    known.says = fact.says[:_SAYS]


def _prolong(known: Took, fact: Took) -> None:
    """Of a rank's parts of work the longest is kept."""
    if fact.seconds > known.seconds:
        known.seconds, known.says = fact.seconds, fact.says[:_SAYS]
        known.line, known.at, known.inherited = fact.line, fact.at, fact.inherited


def _is_named(fact: AnyFact) -> bool:
    return max(fact.rank, fact.local, fact.task) >= 0 or bool(fact.pid or fact.worker or fact.node)


def _key(fact: AnyFact) -> tuple[object, ...]:
    kind = type(fact).__name__
    who = (fact.attempt, fact.rank, fact.local, fact.task, fact.node, fact.pid, fact.worker)
    if isinstance(fact, Progress):
        return (kind, fact.file, fact.part, *who)
    if isinstance(fact, LastWords | Took) or (isinstance(fact, Finished) and fact.tests):
        return (kind, fact.file, *who)
    if isinstance(fact, PythonError):
        frame = fact.frame
        at = (frame.name, frame.line) if frame is not None else ()
        file = -1 if _is_named(fact) else fact.file
        return (kind, file, *who, fact.error, fact.message[:80], at)
    fields = msgspec.structs.asdict(fact)
    if isinstance(fact, KnownError | KilledByLauncher | OomKill) and not _is_named(fact):
        kind = f"{kind} {fact.file}"  # whoever speaks in another file is another process
    return (kind, *(repr(fields[name]) for name in sorted(fields) if name not in _WHERE))
