"""Where a process was when it failed, by the stack that its runtime prints below the error, and the failure
that only such a stack shows.

forrtl: severe (174): SIGSEGV, segmentation fault occurred     <- an error that a rule knows
Image              PC                Routine            Line        Source
wave               00000000004A5B1C  field_mod_mp_read         231  field.F90

An error that no rule knows has no more than the line above its stack: who prints a stack has failed, unless it
was asked to end.
"""

from __future__ import annotations

import re

from ...model.frame import Frame
from ...model.log_ends import CRASHES
from ...model.log_facts import MPI_ABORT, AnyFact, Ended, KnownError
from .named_in_line import named
from .native_frames import chosen, frame_of, is_heading, is_signal, source_of
from .prefix import Said

RULE = "runtime_stack"
_OF_STACKS = frozenset(
    {
        *CRASHES,
        *("fortran", "fortran_gnu", "fortran_stop", "fms", "mpi_internal", "mpi_truncated"),
        *("cxx_exception", "host_memory", "assertion", "heap_broken", "openfoam", "mpi_misuse"),
    }
)
_BELOW = 12  # lines between the error and its stack
_MOST = 60  # frames
_GAP = 3  # other lines within a stack
_SPACED = re.compile(
    r"\b(?:[Rr]ank|PE|[Pp]rocessor)\s?[:=]?\s{1,16}(\d{1,7})\s{0,8}$"
)  # as Fortran prints numbers
_ASKED = re.compile(
    r"SIGTERM|SIGINT|[Tt]erminat|[Ii]nterrupt|signal (?:number )?(?:2|15)\b|\(78\)|\(69\)"
)


class CrashPlaces:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._fact: KnownError | Ended | None = None
        self._speaker = Said().speaker()
        self._left = 0  # lines in which its stack may begin, or go on
        self._frames: list[Frame] = []
        self._above = ("", Said(), 0)  # the last line that is no frame
        self._alone: tuple[str, Said, int] | None = None  # the line above a stack that no error has
        self._loose: list[Frame] = []
        self._loose_of = (Said().speaker(), 0)  # who printed them, and the last line
        self._mixed: set[int] = set()  # facts whose stacks differ, by their lines

    def begin(self, fact: AnyFact, said: Said) -> bool:
        """What was found in a line; whether a stack may come below it."""
        if isinstance(fact, Ended) and fact.by == MPI_ABORT:
            self._place_aborted(fact, said)
            return False
        crash = isinstance(fact, Ended) and fact.code < 0 and fact.code not in (-15, -9, -2)
        known = isinstance(fact, KnownError) and fact.rule in _OF_STACKS
        if not (crash or known):
            return False
        same = self._fact is not None and self._speaker == said.speaker() and not self._frames
        if same and self._left > 0:
            return True  # a further line of the same end
        self._settle()
        assert isinstance(fact, KnownError | Ended)
        self._fact, self._speaker, self._left = fact, said.speaker(), _BELOW
        return True

    def feed(self, said: Said, line: int) -> tuple[KnownError, Said, int] | None:
        """The next line; a failure that only the stack above it shows, with who said it in which line."""
        text = said.text
        if is_heading(text) and self._fact is None:
            self._open_alone(said)
        if is_signal(text):
            self._frames.clear()
            self._loose.clear()
            return None
        frame = frame_of(text)
        frames = self._frames or self._loose
        if frame is None and frames and (place := source_of(text)) is not None:
            frames[-1].file, frames[-1].line = place
            return None
        if frame is not None and self._left <= 0:
            self._add_loose(frame, said, line)
        if frame is not None:
            if self._left > 0 and said.speaker() == self._speaker and len(self._frames) < _MOST:
                self._frames.append(frame)
                self._left = _GAP
            return None
        if text.strip() and not is_heading(text):
            self._above = (text, said, line)
        if self._left > 0 and said.speaker() == self._speaker:
            self._left -= 1
            return self._settle() if self._left <= 0 else None
        return None

    def _add_loose(self, frame: Frame, said: Said, line: int) -> None:
        """A frame of a stack that stands above the line on the end of its process."""
        who, at = self._loose_of
        if who != said.speaker() or line - at > _GAP or len(self._loose) >= _MOST:
            self._loose = []
        self._loose.append(frame)
        self._loose_of = (said.speaker(), line)

    def _place_aborted(self, fact: Ended, said: Said) -> None:
        """By the stack right above a call of MPI_Abort."""
        who, at = self._loose_of
        if self._loose and who == said.speaker() and 0 < fact.line - at <= _GAP:
            fact.place = chosen(self._loose)
        self._loose = []

    def _open_alone(self, said: Said) -> None:
        """A stack begins that no known error has."""
        text, above, _ = self._above
        if text and above.speaker() == said.speaker() and not _ASKED.search(text):
            self._alone, self._left, self._speaker = self._above, _BELOW, said.speaker()

    @property
    def reads(self) -> bool:
        """Whether the next line may belong to a stack."""
        return self._left > 0

    def rest(self) -> tuple[KnownError, Said, int] | None:
        """At the end of the file."""
        return self._settle()

    def _settle(self) -> tuple[KnownError, Said, int] | None:
        """The stack is over."""
        fact, frames, alone = self._fact, self._frames, self._alone
        self._fact, self._frames, self._alone, self._left = None, [], None, 0
        place = chosen(frames)
        if fact is not None and place is not None:
            self._place(fact, place)
        if alone is None or place is None:
            return None
        text, said, line = alone
        who = named(text)
        spaced = _SPACED.search(text)
        rank = said.own_rank() if said.own_rank() >= 0 else who.rank
        rank = int(spaced[1]) if rank < 0 and spaced is not None else rank
        if rank < 0:
            return None
        error = KnownError(rule=RULE, rank=rank, node=who.node, pid=who.pid, place=place)
        error.values = {"why": " ".join(text.split()).strip(" .:!")[:120]}
        return error, said, line

    def _place(self, fact: KnownError | Ended, place: Frame) -> None:
        """Several processes that say the same are one fact: in two places it has none."""
        key = id(fact)
        if key in self._mixed or (fact.place is not None and fact.place != place):
            self._mixed.add(key)
            fact.place = None
        else:
            fact.place = place
