"""Folds what Python prints over many lines: tracebacks, faulthandler's stacks, the recorder's.

Lines of several ranks arrive mixed: each speaker has its own, and speakers without a name share
theirs, where the last traceback that was begun takes the next frames.
"""

from __future__ import annotations

import builtins

import msgspec
from msgspec import Struct

from ...model.frame import Frame
from ...model.log_facts import PythonError, ThreadStack
from ...stacks.user_code import is_users
from ...text.late import late
from .elastic_table import HEADS
from .introduced import THREAD_STARTS, Introduced
from .prefix import Said, Speaker
from .python_frames import is_launchers, own_frame
from .raised_again import HEAD
from .recorded_stacks import RecordedStacks
from .rich_boxes import RichBoxes

_BEGIN = "Traceback (most recent call last)"
_FRAME = late(r'^\s*File ["“]([^"”]{1,500})["”], [Ll]ine (\d{1,9})(?:,? in (.{1,200}))?\s*$')
# A checkpoint of torch's: who coordinates it prints what the others raised.
_WHOSE = late(r"\(most recent call last\): \(RANK (\d{1,7})\)")
# Python's own words where a thread ends by an exception; the process goes on without it.
_OF_THREAD = late(r"Exception in thread (\S.{0,79}):\s*$")
# And where nobody can take one: the process goes on.
_IGNORED = "Exception ignored in"
_CHAINED = ("During handling of the above", "The above exception was")
_STACK = late(r"(?:Thread|thread) (0x[0-9a-fA-F]{1,16})[^(]{0,80}\(most recent call first\)")
_FATAL = late(r"Fatal Python error: (.{1,80})")
_ERROR = late(
    r"^\s{0,4}(?:[A-Za-z_][\w.]{0,120}\.)?([A-Z]\w{0,80})(?:\([\w., ]{0,80}\))?(?::\s*(.*)|:?\s*)$"
)
_ENDS = (
    "Error",
    "Exception",
    "Interrupt",
    "Exit",
    "Expired",
    "Timeout",
    "NotFound",
    "Closed",
    "Died",
)
_LIMIT = late(r"^Timeout \((\d{1,4}):(\d\d):(\d\d)(?:\.\d{1,9})?\)!$")  # by dump_traceback_later
_KEPT = 48  # innermost frames of a thread's stack, and its outermost
_BESIDE = 8  # of one that is no main thread's
_OF_ERROR = 48  # innermost ones of a traceback
_SOURCE = 160  # characters of a line
_OPEN = 64  # tracebacks of one speaker that have not ended
_MESSAGE = 300
# "Error dispatching computation: Error …", once for each computation on the way
_SAID_AGAIN = late(r"((?:[A-Z][a-z]+ )[\w ]{4,60}: )\1+")
_BUILT_IN = frozenset(
    name for name in dir(builtins) if name.endswith(("Error", "Exception", "Interrupt", "Exit"))
)
_RAISES = late(
    r"raise [A-Z][\w.]{2,80}\b|assert\b.{3}|[bfru]{0,2}[\"'][A-Z][\w'-]*(?: [\w'.,:{}()/-]+){3}"
)
_CHAINED_ABOVE = 5  # lines; one is empty, and another process may speak between


_NOBODY = Said().speaker()


class _Open(Struct):
    """A traceback that was begun."""

    said: Said
    line: int
    frames: list[Frame] = []
    inherited: bool = False
    thread: str = ""
    ignored: bool = False
    chained: bool = False  # it was raised in handling another one
    original: bool = False  # it is part of the message of another one
    rank: int = -1  # whose it is, where another rank prints it
    headed: bool = False  # its first line was seen, and so its outermost frame


_MAIN = late(r"<module>|(?:.*[._])?main|<lambda>|wrapper")


def _begins_inside(opened: _Open) -> bool:
    """Whether a traceback begins in a function of the user's own: Python's own words on an
    exception that nothing caught begin where the program, the thread or the worker does. Tools that
    shorten it begin it at `main`.
    """
    if (
        not opened.headed
        or not opened.frames
        or opened.thread
        or opened.said.pid
        or opened.said.worker
    ):
        return False
    outer = opened.frames[0]
    return is_users(outer) and _MAIN.fullmatch(outer.name) is None


class Folded(Struct):
    """What a line did: it belongs to a stack (`more` may follow), and may have ended one."""

    belongs: bool = False
    error: PythonError | None = None
    original: bool = False  # the error is the one that the last one was raised from
    stack: ThreadStack | None = None
    recorded: Frame | None = None  # a frame of the recorder's stack
    recorded_of: Said | None = None  # who printed the head of that stack


_NOTHING = Folded()
_BELONGS = Folded(belongs=True)


class Tracebacks:
    """The open stacks of one file."""

    def __init__(self) -> None:
        self._open: dict[Speaker, list[_Open]] = {}
        self._stacks: dict[Speaker, ThreadStack] = {}
        self._who: dict[Speaker, Said] = {}  # of the stacks that have not ended
        self._recorded = RecordedStacks()
        self._at_line = 0
        self._last: dict[Speaker, str] = {}
        self._set_in: dict[Speaker, int] = {}  # how far the last frame is
        self._threads: dict[Speaker, str] = {}  # whose tracebacks come next
        self._ignored: set[Speaker] = set()  # whose next traceback nobody can take
        self._chained: dict[Speaker, int] = {}  # where it said that one follows from another
        self._fatal: dict[Speaker, str] = {}
        self._limit: set[Speaker] = set()
        self._printed: dict[Speaker, ThreadStack] = {}  # by the program, outermost first
        self._introduced: dict[Speaker, Introduced] = {}
        self._boxes: dict[Speaker, RichBoxes] = {}

    def feed(self, said: Said, line: int) -> Folded:
        """Take one line."""
        self._at_line = line
        open_stack = self._stacks.get(said.speaker())
        printed = self._end_of_printed(said)
        folded = self._feed(said, line)
        if not folded.belongs:
            self._note_thread(said)
        if printed is not None and folded.stack is None:
            folded = msgspec.structs.replace(folded, stack=printed)
        if not folded.belongs and folded.error is None and said.rank < 0:
            introduced = self._introduced.setdefault(said.speaker(), Introduced())
            if open_stack is not None:
                introduced.ended(open_stack.frames)
            introduced.line(said.text)
        elif not folded.belongs and folded.error is None and not said.node and not said.worker:
            # Its own prefix is "[watchdog] rank 2:", and what follows has none.
            self._introduced.setdefault(_NOBODY, Introduced()).named(said.rank)
        return folded

    def _note_thread(self, said: Said) -> None:
        """Take a line of no stack: it may say that a thread's traceback comes next."""
        match = _OF_THREAD.search(said.text)
        if match is not None:
            self._threads[said.speaker()] = match[1]
        elif said.text.lstrip().startswith(_IGNORED):
            self._ignored.add(said.speaker())
        elif said.text.startswith(_CHAINED):
            self._chained[said.speaker()] = self._at_line
        elif said.text.strip():
            self._threads.pop(said.speaker(), None)

    def _feed(self, said: Said, line: int) -> Folded:
        key, text = said.speaker(), said.text
        if text.lstrip().startswith(HEADS):
            return _NOTHING  # the message of the launcher's own error
        if _LIMIT.match(text.rstrip()):
            self._limit.add(key)
        if ("│" in text or "─" in text or key in self._boxes) and self._is_boxed(key, said, line):
            return _BELONGS
        if _BEGIN in text:
            begun = self._open.setdefault(key, [])
            opened = _Open(said, line, thread=self._threads.get(key, ""), headed=True)
            opened.ignored = key in self._ignored
            opened.original = HEAD in text
            whose = _WHOSE.search(text)
            opened.rank = int(whose[1]) if whose is not None else -1
            self._ignored.discard(key)
            opened.chained = line - self._chained.get(key, line) in range(1, _CHAINED_ABOVE)
            begun.append(opened)
            del begun[:-_OPEN]
            self._stacks.pop(key, None)
            return _BELONGS
        recorded = self._recorded.frame(said)
        if recorded is not None:
            of, frame = recorded
            return Folded(belongs=True, recorded=frame, recorded_of=of)
        if text.startswith(("  ", "\t", "File ", " File ", "#")):
            return self._indented(key, said, line)
        if key in self._stacks or "recent call first" in text or "Fatal Python" in text:
            return self._thread(key, said, line)
        if self._recorded.begins(said):
            return _BELONGS
        return self._ended(key, said, line)

    def _is_boxed(self, key: Speaker, said: Said, line: int) -> bool:
        """Whether a line is a row of a traceback in a box, whose frame is then the next one."""
        row = self._boxes.setdefault(key, RichBoxes()).feed(said.text)
        begun = self._open.setdefault(key, [])
        if row is not None and row.frame is not None:
            if not begun:
                begun.append(_Open(said, line))
            begun[-1].frames.append(row.frame)
        elif row is not None and row.code and begun and begun[-1].frames:
            begun[-1].frames[-1].code = row.code
        return row is not None

    def _indented(self, key: Speaker, said: Said, line: int) -> Folded:
        match = _FRAME.match(said.text)
        if match is None:
            if self._take_source(key, said.text):
                return _BELONGS
            known = bool(self._open.get(key)) or key in self._stacks or key in self._printed
            ended = self._ended(key, said, line) if known else _NOTHING
            return ended if ended.belongs or not known else _BELONGS
        frame = Frame((match[3] or "<module>").strip(), match[1], int(match[2]))
        self._set_in[key] = _set_in(said.text)
        if key in self._stacks:
            del self._stacks[key].frames[_KEPT:]
            self._stacks[key].frames.append(frame)
            return _BELONGS
        # Frames without a head: a stack that the program printed, or the log begins in the middle of a
        # traceback.
        begun = self._open.setdefault(key, [])
        if not begun and ", in " not in said.text:
            return _NOTHING  # a frame of some other list of stacks
        if not begun and self._is_printed(key, said, line):
            self._printed[key].frames.append(frame)
            return _BELONGS
        if not begun:
            begun.append(_Open(said, line))
        begun[-1].frames.append(frame)
        return _BELONGS

    def _is_printed(self, key: Speaker, said: Said, line: int) -> bool:
        """Whether a line that names one rank has introduced these frames: ``rank 2: no step for 75 s``."""
        if key not in self._printed:
            rank = self._rank_of(key, None)
            if rank < 0:
                return False
            self._printed[key] = ThreadStack(rank=rank, line=line, guarded=True)
            self._who[key] = said
        return True

    def _end_of_printed(self, said: Said) -> ThreadStack | None:
        """The stack that this line ends, innermost first; None while it goes on."""
        key = said.speaker()
        if key not in self._printed or said.text.startswith(("  ", "\t")):
            return None
        done = self._printed.pop(key)
        done.frames = done.frames[-_KEPT:][::-1]
        self._introduced[key].over()
        return done

    def _take_source(self, key: Speaker, text: str) -> bool:
        """The line below a frame of a traceback is its source: a call there, such as ``Train(args)``, is no
        exception, and what is set in less than the frame is no source.
        """
        begun = self._open.get(key)
        frames = begun[-1].frames if begun else []
        if key in self._printed:
            frames = self._printed[key].frames
        below = _set_in(text) > self._set_in.get(key, 0)
        if not frames or frames[-1].code or key in self._stacks:
            return False
        if text.strip() and (below or text.startswith("    ")):
            frames[-1].code = text.strip()[:_SOURCE]
            return below
        return False

    def _thread(self, key: Speaker, said: Said, line: int) -> Folded:
        fatal = _FATAL.search(said.text)
        if fatal is not None:
            self._fatal[key] = fatal[1].strip()
            return _NOTHING  # a rule may know it
        done = self._stacks.pop(key, None)
        if done is not None and done.frames and done.frames[-1].name in THREAD_STARTS:
            del done.frames[_BESIDE:-1]
        match = _STACK.search(said.text)
        if match is not None:
            rank = self._rank_of(key, done)
            begun = ThreadStack(rank=rank, thread=match[1], line=line)
            begun.fatal = self._fatal.get(key, "")  # of all threads: the process ends with it
            begun.guarded = key in self._limit
            self._stacks[key], self._who[key] = begun, said
        elif said.text.strip() and _LIMIT.match(said.text.rstrip()) is None:
            self._limit.discard(key)
        return Folded(belongs=match is not None, stack=done)

    def _rank_of(self, key: Speaker, before: ThreadStack | None) -> int:
        """The rank that a line before the stacks names; -1 where none does."""
        introduced = self._introduced.get(key)
        if introduced is None:
            return -1
        if before is not None:
            introduced.ended(before.frames)
        return introduced.head()

    def _ended(self, key: Speaker, said: Said, line: int) -> Folded:
        match = _ERROR.match(said.text)
        begun = self._open.get(key, [])
        if match is None or not (begun or match[1].endswith(_ENDS)):
            return _NOTHING
        if not match[1].endswith(_ENDS) and not begun[-1].frames:
            return _NOTHING
        if not begun and (not match[2] or match[1] in ("Error", "Exception")):
            return _NOTHING
        opened = begun.pop() if begun else _Open(said, line)
        error = PythonError(
            error=match[1],
            message=_SAID_AGAIN.sub(r"\1", (match[2] or "").strip())[:_MESSAGE],
            frames=opened.frames[-_OF_ERROR:][::-1],
            frame=own_frame(opened.frames),
            chained=self._last.get(key, ""),
            began=opened.line,
            thread=opened.thread,
            rank=opened.rank,
            inside=_begins_inside(opened),
        )
        if opened.ignored:
            error.role = "note"
        self._last[key] = match[1]
        return Folded(belongs=True, error=error, original=opened.original)

    def last_stacks(self) -> list[tuple[Said, ThreadStack]]:
        """Stacks that the end of the file has ended, with who printed them."""
        for stack in self._printed.values():
            stack.frames.reverse()
        both = [*self._stacks.items(), *self._printed.items()]
        self._stacks.clear()
        self._printed.clear()
        return [(self._who[key], stack) for key, stack in both]

    def unfinished(self) -> list[tuple[Said, int, PythonError]]:
        """Tracebacks whose last line is not in the file, with who printed them and where."""
        found = []
        for begun in self._open.values():
            for opened in begun:
                if opened.frames and not is_launchers(opened.frames):
                    error = PythonError(
                        frames=opened.frames[-_OF_ERROR:][::-1],
                        frame=own_frame(opened.frames),
                        message=_raises(opened.frames[-1]),
                        rank=opened.rank,
                    )
                    if opened.ignored:
                        error.role = "note"
                    elif opened.chained:
                        error.role = (
                            "consequence"  # of the exception above, whose own lines are missing
                        )
                    found.append((opened.said, opened.line, error))
        self._open.clear()
        return found


def cut_in_its_name(error: PythonError) -> None:
    """Take the beginning of an error's name, with which a text ends, for the cut that it is."""
    begun = error.error
    if not begun or error.message or not error.frames or begun in _BUILT_IN:
        return
    if any(name.startswith(begun) for name in _BUILT_IN):
        error.error, error.message = "", _raises(error.frames[0])


def _raises(last: Frame) -> str:
    """The source of a last frame that raises an exception, checks something, or is a sentence for who reads it."""
    if _RAISES.match(last.code) is None:
        return ""
    return f"the last line of source is '{last.code}'"


def _set_in(text: str) -> int:
    return len(text) - len(text.lstrip())
