"""Where a process was when it failed, by the stack that its runtime prints below the error, and the failure
that only such a stack shows. How a frame looks, and which of them is the place, is for `native_frames`.

forrtl: severe (174): SIGSEGV, segmentation fault occurred     <- an error that a rule knows
Image              PC                Routine            Line        Source
wave               00000000004A5B1C  field_mod_mp_read         231  field.F90

Lines of processes whose prefixes tell them apart may be mixed. An error that no rule knows has no more than the
line above its stack: who prints a stack has failed, unless it was asked to end.
"""

from __future__ import annotations

from msgspec import Struct

from ...model.frame import Frame
from ...model.log_ends import CRASHES, SENT
from ...model.log_facts import MPI_ABORT, AnyFact, Ended, KnownError
from ...text.late import late
from .named_in_line import named
from .native_frames import (
    chosen,
    frame_of,
    is_broken,
    is_caught,
    is_heading,
    is_signal,
    python_frame_of,
    source_of,
)
from .prefix import Said, Speaker

RULE = "runtime_stack"
NO_SIGNAL = "crash_stack"  # another rule
_OF_STACKS = frozenset(
    {
        *CRASHES,
        NO_SIGNAL,
        *("fortran", "fortran_gnu", "fortran_stop", "fms", "mpi_internal", "mpi_truncated"),
        *("cxx_exception", "host_memory", "assertion", "heap_broken", "openfoam", "mpi_misuse"),
    }
)
_BELOW = 14  # lines between the error and its stack
_MOST = 60  # frames
_GAP = 4  # other lines within a stack
_FAR = 400  # lines of others meanwhile
_PARTS = 12  # lines that one frame is broken into
_OPEN = 64  # stacks that may go on
_PROCESS = late(r"\[[A-Za-z0-9][\w.-]{0,127}:(\d{1,9})(?: ?:\d{1,9}){0,3}\] ?")
_TID = late(r"== ?backtrace \(tid: {0,12}(\d{1,9})\)")  # UCX's, of what comes next
_ITS_THREAD = late(r"Current thread 0x")
_OTHER_THREAD = late(r"Thread 0x[0-9a-fA-F]{1,16}")
# As Fortran prints numbers
_SPACED = late(r"\b(?:[Rr]ank|PE|[Pp]rocessor)\s?[:=]?\s{1,16}(\d{1,7})\s{0,8}$")
# 78 and 69 are SIGTERM and SIGINT, as Intel's Fortran numbers its errors
_ASKED = late(
    r"SIGTERM|SIGINT|[Tt]erminat|[Ii]nterrupt|signal (?:number )?(?:2|15)\b|\(78\)|\(69\)"
)
Found = tuple[KnownError, Said, int]  # who says it, in which line


class _Stack(Struct):
    """Of one process, as far as it is read."""

    facts: list[KnownError | Ended]  # of one line, which several rules may know
    speaker: Speaker
    pid: int
    line: int  # the last of its process
    left: int = _BELOW  # lines in which it may begin, or go on
    frames: list[Frame] = []
    alone: tuple[str, Said, int] | None = None  # the line above it, where no error is known
    beside: bool = False  # in the stack of another thread
    python: bool = False  # faulthandler has begun
    held: str = ""  # the first parts of a frame that a mail has broken
    parts: int = 0  # how many these are
    nameless: bool = False  # its lines do not name its process


class CrashPlaces:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._stacks: list[_Stack] = []
        self._caught: set[Speaker] = set()
        self._headed: dict[Speaker, int] = {}  # whose stack comes next, by its heading
        self._last: _Stack | None = None  # whose the line before was
        self._above = ("", Said(), 0)  # the last line that is no frame
        self._loose: list[Frame] = []  # of a stack that may stand above the line on its end
        self._loose_of = (Said().speaker(), 0)  # who printed them, and the last line
        self._mixed: set[int] = set()  # facts whose stacks differ

    # ------------------------------------------------------------------ which stacks are open

    def begin(self, fact: AnyFact, said: Said) -> bool:
        """What was found in a line; whether a stack may come below it."""
        if isinstance(fact, Ended) and fact.by == MPI_ABORT:
            self._place_aborted(fact, said)
            return False
        if not isinstance(fact, KnownError | Ended) or not _may_have_stack(fact):
            return False
        own = [s for s in self._stacks if s.speaker == said.speaker() and not s.alone]
        for stack in own:
            another = fact.pid and stack.pid and fact.pid != stack.pid
            if not stack.frames and not another:
                if _line(stack.facts[0]) == _line(fact):
                    stack.facts.append(fact)
                return True  # a further line of the same end
            if stack.frames and (stack.nameless or not another):
                self._settle(stack)  # what comes next is that of the new one
        for stack in [s for s in self._stacks if s.alone and s.speaker == said.speaker()]:
            self._stacks.remove(stack)
        self._open(_Stack([fact], said.speaker(), fact.pid, fact.line))
        return True

    def _open(self, stack: _Stack) -> None:
        self._stacks.append(stack)
        if len(self._stacks) > _OPEN:
            self._settle(self._stacks[0])

    def _of(self, pid: int, said: Said) -> _Stack | None:
        """Whose stack a line may belong to: its process', else that of the only speaker."""
        of_process = [s for s in self._stacks if pid and s.pid == pid]
        if of_process:
            return of_process[-1]
        same = [s for s in self._stacks if s.speaker == said.speaker() and not (pid and s.pid)]
        return same[0] if len(same) == 1 else None

    @property
    def reads(self) -> bool:
        """Whether the next line may belong to a stack."""
        return bool(self._stacks)

    # ------------------------------------------------------------------ their lines

    def feed(self, said: Said, line: int) -> list[Found]:
        """The next line; the failures that only a stack shows."""
        caught = self._caught_by(said, line)
        if caught is not None:
            return [caught]
        far = [stack for stack in self._stacks if line - stack.line > _FAR]
        found = [self._settle(stack) for stack in far]
        process = _PROCESS.match(said.text)
        broken = self._last if process is None else None
        pid = int(process[1]) if process is not None else self._pid(said)
        text = said.text[process.end() :] if process is not None else said.text
        stack = broken if broken is not None and broken.held else self._of(pid, said)
        self._last = stack
        if stack is None and is_heading(text):
            self._open_alone(said, line)
        elif stack is None:
            self._feed_loose(said, text, line)
        else:
            stack.line, stack.nameless = line, stack.nameless or not pid
            found.append(self._feed(stack, text, process is None))
        if text.strip() and not is_heading(text) and frame_of(text) is None:
            self._above = (text, said, line)
        return [one for one in found if one is not None]

    def _feed(self, stack: _Stack, text: str, without_process: bool) -> Found | None:
        """A line of a process whose stack is open."""
        if _ITS_THREAD.match(text) is not None:
            stack.beside, stack.python = False, True
            return None
        if _OTHER_THREAD.match(text) is not None:
            stack.beside = True
        goes_on = bool(stack.held) and without_process and not stack.beside
        text = f"{stack.held.rstrip()}{text.strip()}" if goes_on else text
        stack.parts = stack.parts + 1 if goes_on else 1
        stack.held = text if stack.parts < _PARTS and is_broken(text) else ""
        if is_signal(text):
            stack.frames.clear()  # those of the signal's handler
            return None
        frame = python_frame_of(text) if stack.python else None
        frame = frame or frame_of(text)
        place = source_of(text) if frame is None and stack.frames else None
        if place is not None:
            stack.frames[-1].file, stack.frames[-1].line = place
        if frame is not None and not stack.beside and len(stack.frames) < _MOST:
            stack.frames.append(frame)
            stack.left = _GAP
        if frame is not None or place is not None or stack.held or stack.beside:
            return None
        stack.left -= 1
        return self._settle(stack) if stack.left <= 0 else None

    def _pid(self, said: Said) -> int:
        """The process of a line whose prefix does not name it."""
        headed = _TID.search(said.text) if "backtrace" in said.text else None
        if headed is not None:
            self._headed[said.speaker()] = int(headed[1])
        told = said.pid or self._headed.get(said.speaker(), 0)
        return told if told == said.pid or any(s.pid == told for s in self._stacks) else 0

    def _caught_by(self, said: Said, line: int) -> Found | None:
        """A crash that its stack is the only sign of: the line on the signal itself is missing."""
        who = said.speaker()
        if not is_caught(said.text) or said.rank < 0 or who in self._caught:
            return None
        if self._of(said.pid, said) is not None:
            return None
        self._caught.add(who)
        return KnownError(rule=NO_SIGNAL), said, line

    def _open_alone(self, said: Said, line: int) -> None:
        """A stack begins that no known error has."""
        text, above, _ = self._above
        if text and above.speaker() == said.speaker() and not _ASKED.search(text):
            self._open(_Stack([], said.speaker(), said.pid, line, alone=self._above))

    def _feed_loose(self, said: Said, text: str, line: int) -> None:
        """A frame of a stack that stands above the line on the end of its process."""
        if is_signal(text):
            self._loose.clear()
            return
        frame = frame_of(text)
        if frame is None:
            place = source_of(text) if self._loose else None
            if place is not None:
                self._loose[-1].file, self._loose[-1].line = place
            return
        who, at = self._loose_of
        if who != said.speaker() or line - at > _GAP or len(self._loose) >= _MOST:
            self._loose = []
        self._loose.append(frame)
        self._loose_of = (said.speaker(), line)

    # ------------------------------------------------------------------ what they tell

    def rest(self) -> list[Found]:
        """At the end of the file."""
        found = [self._settle(stack) for stack in list(self._stacks)]
        return [one for one in found if one is not None]

    def _place_aborted(self, fact: Ended, said: Said) -> None:
        """By the stack right above a call of MPI_Abort."""
        who, at = self._loose_of
        if self._loose and who == said.speaker() and 0 < fact.line - at <= _GAP:
            fact.place = chosen(self._loose)
        self._loose = []

    def _settle(self, stack: _Stack) -> Found | None:
        """The stack is over: what it holds of a frame goes on in no further line."""
        self._stacks.remove(stack)
        stack.held = ""
        place = chosen(stack.frames)
        if place is None:
            return None
        for fact in stack.facts:
            self._place(fact, place)
        return _alone(*stack.alone, place) if stack.alone is not None else None

    def _place(self, fact: KnownError | Ended, place: Frame) -> None:
        """Several processes that say the same are one fact: in two places it has none."""
        key = id(fact)
        if key in self._mixed or (fact.place is not None and fact.place != place):
            self._mixed.add(key)
            fact.place = None
        else:
            fact.place = place


def _may_have_stack(fact: KnownError | Ended) -> bool:
    if isinstance(fact, Ended):
        return fact.code is not None and fact.code < 0 and fact.code not in SENT
    return fact.rule in _OF_STACKS


def _line(fact: KnownError | Ended) -> tuple[int, int, int]:
    return fact.file, fact.line, fact.pid


def _alone(text: str, said: Said, line: int, place: Frame) -> Found | None:
    """The failure of a rank that the line above a stack names."""
    who = named(text)
    spaced = _SPACED.search(text)
    rank = said.own_rank() if said.own_rank() >= 0 else who.rank
    rank = int(spaced[1]) if rank < 0 and spaced is not None else rank
    if rank < 0:
        return None
    error = KnownError(rule=RULE, rank=rank, node=who.node, pid=who.pid, place=place)
    error.values = {"why": " ".join(text.split()).strip(" .:!")[:120]}
    return error, said, line
