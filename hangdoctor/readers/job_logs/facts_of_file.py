"""Keeps what the lines of one file tell: each fact with its place, its time and who says it, and what it means for
the course of the job.
"""

from __future__ import annotations

import msgspec

from ...model.log_facts import (
    AnyFact,
    Cancelled,
    Ended,
    Finished,
    KnownError,
    PythonError,
    Took,
)
from . import marks
from .collect import Facts
from .course import Course
from .excerpts import began_in, may_be_shown
from .hccl_tasks import RankIds
from .introduced import rank_named
from .lines_below import LinesBelow
from .named_in_line import of_whom
from .place_in_file import PlaceInFile
from .prefix import Said
from .told_earlier import ToldEarlier
from .unread_lines import UnreadLines

_UNKNOWN = (-1, 0)


class FactsOfFile:
    """Adds the facts of one file to those of all. What was kept is told to those who read the lines around it."""

    def __init__(
        self, facts: Facts, index: int, attempt: int, below: LinesBelow, unread: UnreadLines
    ) -> None:
        self.facts, self.index = facts, index
        self.course = Course(attempt)
        self.place = PlaceInFile()
        self.marks = marks.Marks()
        self.heard: set[int] = set()
        self.tasks: set[int] = set()  # that a launcher numbered before the lines
        self.earlier = ToldEarlier()
        self.rank_ids = RankIds()
        self._below, self._unread = below, unread

    def hear(self, said: Said) -> None:
        """Who says a line, and when."""
        if said.task >= 0:
            self.tasks.add(said.task)
        if said.rank >= 0:
            self.heard.update({said.rank, *said.also})
        if said.rank >= 0 or said.worker:
            self.marks.listen(said)
        self.place.hear(said)

    def keep(self, fact: AnyFact, said: Said, text: str) -> AnyFact:
        """Keep a fact of this line; the one that is kept, which an equal line may have told before."""
        fact.file, fact.line, fact.attempt = self.index, self.place.line, self.course.attempt
        fact.says = fact.says or text
        _name(fact, said)
        self._find_rank(fact, said, text)
        if hasattr(fact, "group") and not fact.group:
            fact.group = said.group
        self.place.stamp(fact, said)
        if isinstance(fact, Ended) and fact.by == "torchelastic" and said.agent:
            self.marks.agents.setdefault(said.agent, []).append(self.place.line)
        for rank in said.also:
            self.facts.add(msgspec.structs.replace(fact, rank=rank))
        kept = self.facts.add(fact)
        if kept is fact and may_be_shown(fact):
            self.place.excerpts.take(fact.line, began_in(fact))
        self._below.begin(kept)
        self._unread.end(kept)
        self._follow(fact, kept, said)
        self.earlier.take(fact, kept, said)
        return kept

    def known_errors(self) -> list[KnownError]:
        """Those of this file, so far."""
        known = [fact for fact in self.facts.all if isinstance(fact, KnownError)]
        return [fact for fact in known if fact.file == self.index]

    def _find_rank(self, fact: AnyFact, said: Said, text: str) -> None:
        """The rank of a fact whose line has no prefix with one."""
        if fact.rank >= 0:
            return
        if isinstance(fact, KnownError):
            own = said.own_rank()
            fact.rank = own if own >= 0 else max(marks.watched(text), self.rank_ids.of(text))
            if fact.rank < 0 and fact.role == "cause" and not (fact.pid or fact.worker):
                fact.rank = of_whom(text)
        elif isinstance(fact, Finished):
            fact.rank = rank_named(said.text)
            self.heard.update({fact.rank} - {-1})
        elif isinstance(fact, Took):
            fact.rank = rank_named(said.text)

    def _follow(self, fact: AnyFact, kept: AnyFact, said: Said) -> None:
        """What a fact means for the course of the job."""
        if isinstance(fact, Ended | Cancelled | Finished):
            self.course.end()
            if isinstance(fact, Finished):
                self.course.finish(said.rank)
        elif isinstance(kept, PythonError | KnownError):
            self.course.fail(kept)


def _name(fact: AnyFact, said: Said) -> None:
    """Who said it, as far as the fact does not tell it itself."""
    for name in ("rank", "local", "task", "pid", "group_rank"):
        if hasattr(fact, name) and getattr(fact, name) in _UNKNOWN:
            told = getattr(said, name)
            if told not in _UNKNOWN or getattr(fact, name) == -1:
                setattr(fact, name, told)
    fact.node = fact.node or said.node
    fact.worker = fact.worker or said.worker
