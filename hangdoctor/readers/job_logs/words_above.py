"""The sentence that a program prints right above its own end, such as MPI_Abort, in words that by themselves
would be no failure.

[23] keyword PISO is undefined in dictionary "fvSolution"       <- the sentence, by the rank before it
[23]     From function dictionary::subDict(const word& keyword) const
FOAM parallel run exiting
MPI_ABORT was invoked on rank 23 in communicator MPI_COMM_WORLD

"must", "undefined", "missing" are in many lines of jobs that run well: they count only right above such an end.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import pairwise

from msgspec import Struct, structs

from ...model.log_facts import HYDRA, MPI_ABORT, AnyFact, Ended, KnownError, UnreadFailure
from ...text.late import late
from . import unread
from .failure_words import is_frame, is_general, judged
from .named_in_line import named
from .prefix import Said
from .stated_errors import StatedErrors

_LINES = 24  # lines that are kept
_UNNAMED = 10  # lines above the end in which one without a number may be its speaker's
_CLOSE = 3  # the same above srun's line, which comes at once
_LAUNCHERS = {"slurm": _CLOSE, "mpirun": _UNNAMED, HYDRA: _UNNAMED}
_TOGETHER = 4  # lines between two that were said together
_LONG = 400  # characters that are looked through
_TAG = late(r"^\s{0,8}(?:\[(\d{1,7})\]|[Rr]ank (\d{1,7})\b ?:?|(\d{1,7}): )\s{0,8}")
_RULER = late(r"[\s*|#=_+-]{0,400}")
_WHY = late(
    r"\bmust\b|\bun(?:defined|declared|known|readable|sorted|set)\b|\bmissing\b|\bwrong\b|\bbad\b|\bexpected\b"
    r"|\bnot (?:been )?(?:\w{1,20} )?(?:defined|declared|set|given|initiali[sz]ed|found|present|available|installed|converged?"
    r"|implemented|valid|match|read|open(?:ed)?|known|possible|divisible|equal|agree|specified|licensed|finite)\b"
    r"|\bno(?:ne)? (?:\w{1,30} ){1,4}(?:is|was|were|are)? ?(?:found|given|detected|specified|set|left|available)\b"
    r"|\b(?:is|are|was|were|has|have|does|do|did|can|could) ?not\b|\btoo (?:many|few|small|large|big|long|short|high|low|close)\b"
    r"|\b(?:requires?|needs?) \w|\bdiffers?\b|\bdiverg(?:es?|ed|ing)\b|\binconsistent\b|\bnan\b|\bempty\b|\bnegative\b",
    re.I,
)
# Who speaks of an end, of the advice of a launcher, or of a pause
_OTHER = late(
    r"^\s*NOTE:|\bYou may\b|\bmay or may not\b|\bplease\b|\bif you\b|\bMPI_ABORT\b|\bWARN(?:ING)?\b|\bINFO\b|\bDEBUG\b"
    r"|\bwarning:|\bdeprecat",
    re.I,
)
_OF_STACK = late(r"\s{0,10}[A-Za-z_]\w{2,80}\(\d{1,7}\)\s?[.:]")  # MPICH's
_GLUED = late(r"[-=*_]{8,400}$")  # a ruler without an end of the line before it
# How runtimes say that a process ends, and not why
_STOPS = late(
    r"^\s{0,8}(?:terminate called without|Fatal Python error: Aborted|Aborted(?: \(core dumped\))?\s{0,8}$"
    r"|(?:ERROR )?STOP(?: \d{1,4})?\s{0,8}$)"
)
_SOURCE = late(
    r"[\w/.+-]{1,200}\.(?:c|cc|cpp|cxx|cu|cuh|h|hpp|f90|F90|f|F|inc)(?:[:(]| at line | line )\S{0,80}"
)
_HEADING = late(r"\W{0,20}(?:(?:fatal|program) )?error(?: message)?\W{0,20}", re.I)
_OWN_ERROR = late(
    r"\W{0,8}error,? (?:(?:on|at|in) )?(?:mpi )?(?:rank|process|proc|pe|task) ?#?\d{1,7}\s?:", re.I
)
_SPEAK = late(r"[A-Za-z][a-z]{1,30}")


class _Line(Struct):
    number: int
    rank: int  # -1: it has none
    text: str
    said: Said
    at: float
    attempt: int
    headed: bool = False  # the line above says that this one is an error


class WordsAbove:
    """Of one file."""

    def __init__(self) -> None:
        self._lines: deque[_Line] = deque(maxlen=_LINES)
        self._found: list[tuple[UnreadFailure, int]] = []  # with the lines of the ends
        self._seen = 0  # the line of the last end
        self._heading = 0  # the line of the last one that only says that an error follows
        self._stated = StatedErrors()
        self._statement: _Line | None = None  # where the last one begins

    def feed(self, said: Said, line: int, at: float, attempt: int) -> None:
        """A line that no rule knows."""
        text = said.text[:_LONG]
        if _RULER.fullmatch(text) is not None or is_frame(text) or _OF_STACK.match(text):
            return
        if self._stated.feed(text, line):
            if self._stated.line == line:
                self._statement = _Line(line, said.own_rank(), "", said, said.at or at, attempt)
            return
        tag = _TAG.match(text)
        rank = max(said.own_rank(), said.task)
        if tag is not None and rank < 0:
            rank = int(next(number for number in tag.groups() if number))
        if rank < 0:
            rank = _of_itself(text)
        words = _GLUED.sub("", text[tag.end() :] if tag is not None else text)
        self._stop(said, text, line)
        headed = self._heading == line - 1 > 0
        self._heading = line if _HEADING.fullmatch(words) is not None else 0
        one = _Line(line, rank, words.strip(), said, said.at or at, attempt, headed=headed)
        self._lines.append(one)

    def _stop(self, said: Said, text: str, line: int) -> None:
        """A line by which a runtime says that the process ends: the sentence right above it is its reason."""
        if _STOPS.match(text) is None:
            return
        near = [one for one in self._lines if 0 < line - one.number <= _CLOSE]
        own = [one for one in near if one.said.speaker() == said.speaker()]
        best = _first_why([one for one in own if not _of_others(one.text)])
        if best is not None and judged(best.text) is None:
            fact = _fact(best, best.rank)
            fact.strength = 3
            self._found.append((fact, line))

    def end(self, fact: AnyFact) -> None:
        """A rank's own end: the sentence above it is its word, where it has one."""
        reach = _reach(fact)
        if not reach or (self._seen and fact.line - self._seen <= _LINES):
            return  # or it belongs to the end of another one
        self._seen = fact.line
        number = max(fact.rank, fact.task)
        before = [one for one in self._lines if one.number < fact.line]
        tagged = [one for one in before if one.rank == number >= 0]
        near = [
            one
            for one in before
            if one.rank < 0 and fact.line - one.number <= reach and not _of_others(one.text)
        ]
        stated = self._statement_of(number, fact.line) if _is_own(fact) else None
        own = [one for one in tagged if _OWN_ERROR.match(one.said.text) is not None]
        best = _first_why(tagged) or next(iter(own), None) or stated or _first_why(near)
        best = best or _with_a_place([*tagged, *near], fact.line)
        if best is not None:
            rank = number if _is_own(fact) else best.rank
            self._found.append((_fact(best, rank), fact.line))

    def _statement_of(self, rank: int, end: int) -> _Line | None:
        """The error that a document above this line states, where no other rank did."""
        stated = self._statement
        if stated is None or stated.number != self._stated.line:
            return None
        near = end - stated.number <= _LINES and stated.rank in (-1, rank)
        return structs.replace(stated, text=self._stated.text) if near else None

    def added_to(self, found: list[UnreadFailure]) -> list[UnreadFailure]:
        """These, with the sentences of ranks that have no line among them before their end."""
        lines = {fact.line for fact in found}
        own = [f for f, end in self._found if f.line not in lines and not _has_told(found, f, end)]
        return sorted([*found, *own], key=lambda fact: fact.line)


def _has_told(found: list[UnreadFailure], own: UnreadFailure, end: int) -> bool:
    """Whether its rank has another line above the line of its end."""
    return any(fact.rank == own.rank >= 0 and fact.line < end for fact in found)


def _is_own(fact: AnyFact) -> bool:
    """Whether a rank ended itself, and with it the job."""
    left = isinstance(fact, KnownError) and fact.rule == "mpi_left"
    return left or (isinstance(fact, Ended) and fact.by == MPI_ABORT)


def _reach(fact: AnyFact) -> int:
    """How many lines above an end its words may stand; 0 of what is no process' own end."""
    if _is_own(fact):
        return _UNNAMED if fact.rank >= 0 else 0
    if not isinstance(fact, Ended) or fact.code <= 0:
        return 0
    return _LAUNCHERS.get(fact.by, 0)


def _of_itself(text: str) -> int:
    """The rank that an error of the line names as its own; -1: none."""
    return named(text).rank if _OWN_ERROR.match(text) is not None else -1


def _of_others(text: str) -> bool:
    """Whether a line names a process, or is a launcher's."""
    who = named(text)
    return who.launcher or who.rank >= 0 or who.pid > 0


def _first_why(lines: list[_Line]) -> _Line | None:
    """The first line of the last that were said together that says what was wrong."""
    why = [one for one in lines if _says_why(one.text) or _is_headed(one)]
    begin = why[0] if why else None
    for before, one in pairwise(why):
        if one.number - before.number > _TOGETHER:
            begin = one
    return begin


def _with_a_place(lines: list[_Line], end: int) -> _Line | None:
    """The line right above the end that names a place in the source: programs print it where they give up."""
    last = [one for one in lines if 0 < end - one.number <= _CLOSE]
    placed = [one for one in last if _SOURCE.search(one.text) and not _OTHER.search(one.text)]
    said = [one for one in placed if len(_SPEAK.findall(_SOURCE.sub(" ", one.text))) >= 2]
    return said[-1] if said else None


def _is_headed(line: _Line) -> bool:
    return line.headed and len(_SPEAK.findall(line.text)) >= 3 and not is_general(line.text)


def _says_why(text: str) -> bool:
    words = judged(text)
    if words is not None:
        return not words.general and not words.between
    sentence = len(_SPEAK.findall(text)) >= 3 and not is_general(text)
    return sentence and _WHY.search(text) is not None and _OTHER.search(text) is None


def _fact(line: _Line, rank: int) -> UnreadFailure:
    said = line.said
    text = unread.kept(line.text)
    return UnreadFailure(
        line=line.number,
        at=line.at,
        inherited=said.at <= 0,
        strength=2 if judged(line.text) is not None else 1,
        rank=rank,
        node=said.node,
        pid=said.pid,
        attempt=line.attempt,
        says=text,
        text=text,
        likeness=[text],
        began=line.number,
    )
