"""Native stacks of a process that ends itself: below its call of MPI_Abort or abort() stands what failed.

Such a stack is no wait, however often it is printed. Watchdogs abort a process that others keep waiting,
so that theirs tell nothing of its own.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from msgspec import Struct

from ..model.frame import Frame
from ..model.log_ends import BY_ITSELF
from ..text.late import late
from . import native_program

SIGNAL_HANDLER = "<signal handler called>"
MPI_ABORT = -1  # where a signal's number stands otherwise
_OF_MPI = late(
    r"^P?MPI_Abort$|^p?mpi_abort_{0,2}$|^(?:p?mpi_abort_f\w*|ompi_mpi_abort|MPIR?D?_Abort\w*)$"
)
_OF_C = late(
    r"^(?:__GI_|_{1,3})?abort$|^_gfortran_(?:abort|error_stop\w*|runtime_error\w*)$|^__assert(?:_fail)?(?:_base)?$"
)
# What stands between these and the program, or within them
_AROUND = late(
    r"^(?:(?:__GI_|_{0,3})(?:raise|gsignal|kill|tgkill|pthread_kill\w*)|__libc_(?:message|fatal)\w*|__fortify_fail\w*|__stack_chk_fail"
    r"|__chk_fail|malloc_printerr\w*|_int_(?:free|malloc)\w*|__cxa_(?:throw|rethrow|pure_virtual)|__cxxabiv1::.*|__gnu_cxx::.*"
    r"|std::(?:terminate|__throw_\w+|__glibcxx_assert_fail|__replacement_assert)\w*|MPID?R?_\w*|MPII?_\w*|ompi_\w+|opal_\w+|backend_fatal\w*|handleFatalError)$"
)
_NUMBER = late(r"\b(?:sig|signo|signum|sig_?num|signal|sig_no)=(\d{1,2})\b")
_OF_CRASHES = frozenset(-code for code in BY_ITSELF)
# Below it no signal waits for anything: a handler that is met here is that of a crash
_OF_MEMORY = late(
    r"^(?:_int_(?:free|malloc|realloc)|malloc_consolidate|unlink_chunk|(?:__libc_|__GI___libc_)?(?:free|malloc|realloc|calloc)"
    r"|__(?:mem(?:cpy|move|set)|str(?:len|cpy|cmp))\w*|mem(?:cpy|move|set)|str(?:len|cpy|cmp))$"
)
# Who catches a crash, and keeps the process for a debugger: GASNet, Realm, UCX
_FREEZES = late(
    r"^gasneti_freeze|[Ff]reeze[Ff]orDebugger|^ucs_debug_freeze|^ucs_error_freeze|realm_freeze$"
)
_WATCHES = late(r"[Ww]atchdog|[Hh]eartbeat")


class OwnEnd(Struct, frozen=True):
    """How a process ended itself, and the frame of its program that did it; None where it does not show."""

    how: int  # the signal, or MPI_ABORT
    frame: Frame | None = None
    place: int = -1  # of that frame in the stack


def own_end(frames: Sequence[Frame]) -> OwnEnd | None:
    """None of a stack that is no such end. Frames innermost first."""
    at = 0
    how = 0
    while at < len(frames) and (found := _kind(frames[at])) is not None:
        how = found or how
        at += 1
    if not how or any(_WATCHES.search(frame.name) for frame in frames):
        return None
    rest = frames[at:]
    program = native_program.program(rest)
    own = next((f for f in program if not native_program.is_call(f)), None)
    place = next((at + n for n, frame in enumerate(rest) if frame is own), -1)
    return OwnEnd(how, own, place)


def _kind(frame: Frame) -> int | None:
    """How such a frame ends the process, 0 of one around it; None of any other frame."""
    if _OF_MPI.match(frame.name):
        return MPI_ABORT
    if _OF_C.match(frame.name):
        return signal.SIGABRT
    return 0 if _AROUND.match(frame.name) else None


def signalled(frames: Sequence[Frame], lines: Sequence[str]) -> int:
    """The signal whose handler a process is in, where that is one of a crash: by the handler's own argument, or
    by the function that it met, since what corrupts memory shows up there; 0 for none. `lines`: of the frames, as
    printed.
    """
    at = next((n for n, frame in enumerate(frames) if frame.name == SIGNAL_HANDLER), -1)
    if at < 0:
        return 0
    if any(_FREEZES.search(frame.name) for frame in frames[:at]):
        return signal.SIGSEGV
    told = [int(m[1]) for line in lines[:at] for m in _NUMBER.finditer(line)]
    if told:
        return told[-1] if told[-1] in _OF_CRASHES else 0
    met = frames[at + 1].name if at + 1 < len(frames) else ""
    return signal.SIGSEGV if _OF_MEMORY.match(met) else 0


def crashed_in(frames: Sequence[Frame]) -> Frame | None:
    """The innermost function with a name that a stack of a crash stands in, of the program or of a library;
    None where none has one.
    """
    begin = next((at + 1 for at, f in enumerate(frames) if f.name == SIGNAL_HANDLER), 0)
    named = [frame for frame in frames[begin:] if frame.name not in ("??", "")]
    own = [frame for frame in named if not native_program.is_systems(frame)]
    return next(iter(own or named), None)
