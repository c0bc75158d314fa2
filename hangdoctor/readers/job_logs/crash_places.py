"""Where a process crashed: the first function with a name in the stack that is printed beneath the signal.

[n1:4711] [ 2] /opt/app/solve(_ZN3Sim4stepEv+0x1f)[0x4021ff]     Open MPI's, and glibc's
 2  /opt/app/solve(step+0x1f) [0x4021ff]                         UCX's
 2 0x000000000004a2b1 step()  ???:0                              UCX's, of older versions
    @     0x7f1204a2b1       1216  step()                        glog's and abseil's
#2  0x40a1 in step_ at solve.f90:12                              gfortran's, and gdb's
  File "step.py", line 12 in step                                faulthandler's, below "Current thread"
"""

from __future__ import annotations

import re

from msgspec import Struct

from ...model.frame import Frame
from ...model.log_ends import CRASHES
from ...model.log_facts import AnyFact, KnownError
from ...stacks import native_program
from ...stacks.aborts import crashed_in
from ..native_frames import plain_name
from ..native_frames import read as native_frame
from .prefix import Said, Speaker

_PROCESS = re.compile(r"\[[A-Za-z0-9][\w.-]{0,127}:(\d{1,9})(?::\d{1,9}){0,3}\] ?")
_NUMBERED = re.compile(
    r"\s{0,8}(?:\[ ?\d{1,3}\]|\d{1,3}) {1,4}\S{0,300}?\((?P<name>[^()+\s]{0,300})(?:\([^()]{0,200}\))?\+?(?:0x[0-9a-f]{1,16})?\) ?\[0x[0-9a-f]{1,16}\]"
)
_OPEN_FRAME = re.compile(
    r"\s{0,8}\[ ?\d{1,3}\] {1,4}(?!.*\[0x[0-9a-f]{1,16}\])\S"
)  # no address yet
_BARE = re.compile(  # backtrace_symbols() without a number
    r"\s{0,8}/\S{1,300}?\((?P<name>[^()+\s]{0,300})\+0x[0-9a-f]{1,16}\) ?\[0x[0-9a-f]{1,16}\]"
)
_UCX = re.compile(r"\s{0,8}\d{1,3} 0x[0-9a-f]{8,16} (?P<name>[^\s(][^()]{0,200}?)\(.{0,200}\)\s")
_GLOG = re.compile(
    r"(?:PC:)?\s{0,12}@\s{1,24}0x[0-9a-f]{1,16}\s{1,12}(?:\d{1,9}\s{1,12}|\(unknown\)\s{1,12})?(?P<name>[^\s(][^()]{0,300})\("
)
_FORTRAN = re.compile(
    r"\s{0,8}#\d{1,3}\s{1,4}0x[0-9a-f]{1,16} in (?P<name>[\w.:~<>, ]{1,200}?)(?:\s{1,4}at (?P<file>\S{1,300}):(?P<line>\d{1,9}))?\s*$"
)
_PYTHON = re.compile(
    r'\s{1,8}File "(?P<file>[^"]{1,500})", line (?P<line>\d{1,9}) in (?P<name>\S{1,200})'
)
_ITS_THREAD = re.compile(r"Current thread 0x")
_OTHER_THREAD = re.compile(r"Thread 0x[0-9a-fA-F]{1,16}")
# Of who caught the signal: the stack of the crash itself is below
_HANDLER = re.compile(
    r"(?i)sig(?:nal|segv|action|fpe)?[\w:]{0,20}handler|handle_?(?:error|signal|sig)|back_?trace|(?:print|dump)_?stack|stack_?trace"
    r"|^(?:killpg|__restore_rt|raise|gsignal|__GI_raise)$|WriteFailureInfo|_error_freeze|debug_"
)
_NESTED = re.compile(r"_ZN?K?(?=\d|St\d)")
# Below it a library has caught a signal, and printed no more than the stack
_CAUGHT = re.compile(r"^(?:mxm|ucs)_error_signal_handler$|^killpg$")
_NO_SIGNAL = "crash_stack"  # a rule
_CRASHES = frozenset({*CRASHES, _NO_SIGNAL})
_MOST = 40  # frames
_AROUND = 14  # lines that are none, of one stack
_OPEN = 64  # crashes that may go on
_HANDLERS = 9  # frames that they may take


class _Crash(Struct):
    facts: list[KnownError]  # of one line, which several rules may know
    speaker: Speaker
    frames: list[Frame] = []
    left: int = _AROUND
    beside: bool = False  # in the stack of another thread
    held: str = ""  # the first part of a frame that a mail has broken
    python: bool = False  # faulthandler has begun its stack


class CrashPlaces:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._crashes: list[_Crash] = []
        self._caught: set[Speaker] = set()
        self._last: _Crash | None = None  # whose the line before was

    def hold(self, fact: AnyFact, said: Said) -> None:
        """A crash, whose stack may come next."""
        if not isinstance(fact, KnownError) or fact.rule not in _CRASHES or "in" in fact.values:
            return
        last = self._crashes[-1] if self._crashes else None
        if last is not None and _line(last.facts[0]) == _line(fact):
            last.facts.append(fact)
            return
        self._crashes = [*self._crashes[-_OPEN:], _Crash([fact], said.speaker())]

    def caught(self, said: Said) -> KnownError | None:
        """A crash that a line is the only sign of: the stack of a signal, whose own line is missing."""
        if "error_signal_handler" not in said.text and "killpg" not in said.text:
            return None
        frame = _frame(said.text, with_python=False)
        known = self._of(said.pid, said) is not None or said.speaker() in self._caught
        if frame is None or known or _CAUGHT.match(frame.name) is None or said.rank < 0:
            return None
        self._caught.add(said.speaker())
        return KnownError(rule=_NO_SIGNAL)

    def feed(self, said: Said) -> bool:
        """A later line; whether it is of a stack."""
        if not self._crashes:
            return False
        process = _PROCESS.match(said.text)
        text = said.text[process.end() :] if process is not None else said.text
        pid = int(process[1]) if process is not None else said.pid
        broken = self._last if process is None and self._last is not None else None
        crash = broken if broken is not None and broken.held else self._of(pid, said)
        self._last = crash
        if crash is None:
            return False
        if text.startswith("Current") and _ITS_THREAD.match(text):
            crash.beside, crash.python = False, True
            return True
        if _OTHER_THREAD.match(text) is not None:
            crash.beside = True
        if crash.held and process is None and not crash.beside:
            text = f"{crash.held.rstrip()}{text.strip()}"
        crash.held = text if _OPEN_FRAME.match(text) is not None else ""
        frame = _frame(text, crash.python)
        if frame is None and crash.held:
            return True
        if frame is None:
            crash.left -= not crash.beside
            if crash.left <= 0:
                self._crashes.remove(crash)
            return False
        if not crash.beside and len(crash.frames) < _MOST:
            crash.frames.append(frame)
            _place(crash)
        return True

    def _of(self, pid: int, said: Said) -> _Crash | None:
        """Whose stack a line may belong to: its process', else that of the only speaker."""
        same = [c for c in self._crashes if pid and c.facts[0].pid == pid]
        if not same and not pid:
            same = [c for c in self._crashes if c.speaker == said.speaker()]
            same = same if len(same) == 1 else []
        if not same and pid:
            nameless = [
                c for c in self._crashes if not c.facts[0].pid and c.speaker == said.speaker()
            ]
            same = nameless if len(nameless) == 1 else []
        return same[-1] if same else None


def _place(crash: _Crash) -> None:
    frames = crash.frames
    handlers = [n for n, f in enumerate(frames[:_HANDLERS]) if _HANDLER.search(f.name)]
    below = frames[handlers[-1] + 1 :] if handlers else frames
    place = crashed_in([f for f in below if f.name])
    if place is None or native_program.is_systems(place) or place.name.startswith("__"):
        return
    at = f" ({place.file.rpartition('/')[2]}:{place.line})" if place.line else ""
    for fact in crash.facts:
        fact.values["in"] = f"in {place.name}{at}"


def _line(fact: KnownError) -> tuple[int, int, int]:
    return fact.file, fact.line, fact.pid


def _frame(text: str, with_python: bool) -> Frame | None:
    """The frame of a line; its name is "" where the stack has none."""
    python = _PYTHON.match(text) if with_python else None
    if python is not None:
        return Frame(python["name"], python["file"], int(python["line"]))
    for pattern in (_NUMBERED, _BARE, _UCX, _GLOG):
        match = pattern.match(text)
        if match is not None:
            return Frame(_named(match["name"]), "", 0)
    fortran = _FORTRAN.match(text)
    if fortran is not None:
        name = "" if fortran["name"].strip("?") == "" else fortran["name"]
        return Frame(name, fortran["file"] or "", int(fortran["line"] or 0))
    native = native_frame(text)
    if native is None:
        return None
    return Frame(native.frame.name.strip("?"), native.frame.file, native.frame.line)


def _named(name: str) -> str:
    """The function as people write it: ``_ZN3Sim4stepEv`` is Sim::step; "" of one that is no name."""
    name = name.strip()
    match = _NESTED.match(name)
    if match is None:
        return "" if name.startswith(("_Z", "0x", "(")) or name == "(unknown)" else plain_name(name)
    at, parts = match.end(), ["std"] if name[match.end() :].startswith("St") else []
    at += 2 * len(parts)
    while (number := re.match(r"\d{1,3}", name[at:])) is not None:
        begin = at + number.end()
        at = begin + int(number[0])
        parts.append(name[begin:at])
    return "::".join(parts)
