"""One frame of the stack that a runtime prints below an error: of Intel's and GNU's Fortran, of glibc's, Open
MPI's, UCX's and MPICH's own, of glog, gdb and faulthandler, and which frames only tell how the process came to
print it.

wave               00000000004A5B1C  field_mod_mp_read         231  field.F90
#5  0x2b51e1a in __field_MOD_read
        at /src/field.F90:231
[n7:811] [ 3] /opt/wave/bin/wave(_ZN5Field4readEv+0x1f3)[0x4a5b1c]
 4 0x000000000004a5b1 field_read()  /src/field.c:231
    @     0x7f1204a2b1       1216  field_read()
  File "field.py", line 12 in read
"""

from __future__ import annotations

import re

from ...model.frame import Frame
from ...stacks import native_program
from ...text.late import late
from ..native_frames import plain_name
from ..native_frames import read as frame_of_debugger

_PLACE = (
    r"(?:\d{1,7}:(?=\s?MPT))?\s?(?:\[[A-Za-z][\w.-]{0,127}:\d{1,9}(?: ?:\d{1,9}){0,3}\] ?|MPT: ?)?"
)
# image, address, routine, line, source: a name of more than some letters is cut there
_INTEL = late(
    r"^\s{0,8}(?P<image>\S{1,60})\s{1,40}[0-9A-Fa-f]{8,16}\s{1,20}(?P<name>\S{1,60})\s{1,40}(?P<line>\d{1,7}|Unknown)\s{1,12}(?P<file>\S{1,120})\s{0,8}$"
)
_GNU = late(
    rf"^{_PLACE}\s{{0,8}}#\d{{1,3}} {{1,4}}(?:0x[0-9a-f]{{1,16}} in )?(?P<name>[A-Za-z_][\w:~<>.@]{{0,200}})(?: ?\(.{{0,300}}?(?:\)|$))?"
    r"(?:\s{1,12}(?:at|from) (?P<file>[^\s:]{1,300})(?::(?P<line>\d{1,7}))?)?\s{0,8}$"
)
_AT = late(
    r"^(?:(?:\d{1,7}:)?\s?MPT:)?\s{1,20}at (?P<file>[^\s:]{1,300}):(?P<line>\d{1,7})\s{0,8}$"
)
_IN_IMAGE = late(
    rf"^{_PLACE}\s{{0,8}}(?:\[ ?\d{{1,3}}\] ?|\d{{1,3}} {{1,4}})?(?:func:)?(?P<image>[^\s()]{{1,300}}?)\((?P<name>[A-Za-z_][\w.:~@]{{0,400}})?\+0x[0-9a-f]{{1,16}}\)"
)
_UCX = late(
    rf"^{_PLACE}\s{{0,8}}\d{{1,3}} {{1,4}}0x[0-9a-f]{{8,16}} (?P<name>[A-Za-z_][\w:~<>]{{0,200}})\(.{{0,200}}\) {{1,8}}(?P<file>[^\s:]{{1,300}}):(?P<line>\d{{1,7}})\s{{0,8}}$"
)
# With arguments and all templates, or without the offset
_WHOLE = late(
    r"^\s{0,8}\[ ?\d{1,3}\] {1,4}(?P<image>[^\s()]{0,300})\((?P<name>[A-Za-z_].{0,9000})\+0x[0-9a-f]{1,16}\) ?\[0x[0-9a-f]{1,16}\]"
)
_OPEN_MPI = late(
    r"^\s{0,8}(?:\[ ?\d{1,3}\]|\d{1,3}) {1,4}(?P<image>[^\s()]{0,300})\((?P<name>[^()+\s]{1,300})(?:\([^()]{0,200}\))?\+?(?:0x[0-9a-f]{1,16})?\) ?\[0x[0-9a-f]{1,16}\]"
)
# It has no address yet
_BROKEN = late(r"\s{0,8}\[ ?\d{1,3}\] {1,4}(?!.*\[0x[0-9a-f]{1,16}\])\S")
_GLOG = late(
    r"^(?:PC:)?\s{0,12}@\s{1,24}0x[0-9a-f]{1,16}\s{1,12}(?:\d{1,9}\s{1,12}|\(unknown\)\s{1,12})?(?P<name>[A-Za-z_~][^()]{0,300})(?=\(|$)"
)
_PYTHON = late(
    r'^\s{1,8}File "(?P<file>[^"]{1,500})", line (?P<line>\d{1,9}) in (?P<name>\S{1,200})'
)
# A row without a name
_EMPTY = late(
    rf"^{_PLACE}\s{{0,8}}(?:#\d{{1,3}} {{1,4}}0x[0-9a-f]{{1,16}}|\[ ?\d{{1,3}}\] ?\S{{0,300}}\[0x|\S{{1,300}}\(\) \[0x|\[ ?\d{{1,3}}\] ?\[0x)"
)
_HANDLER = late(rf"^{_PLACE}\s{{0,8}}#\d{{1,3}} {{1,4}}<signal handler called>")
# Below it a library has caught a signal, and may have printed no more than the stack
_CAUGHT = late(r"^(?:mxm|ucs)_error_signal_handler$|^killpg$")
_MANGLED = late(r"_ZN?K?(?=\d|St\d)")
_FORTRAN = late(r"__(\w{1,80}?)_MOD_(\w{1,80})$")
# The names that stand next to those which NVIDIA's driver does not tell
_NEXT_TO = late(r"^cu(?:EGL|VDPAU|GL|D3D|MemGetAttribute)\w{0,60}$")
_UNKNOWN = ("Unknown", "??", "???", "(unknown)")
# How a process comes from its error to the stack: signals, exceptions, its own way to stop
_ENDS = late(
    r"abort|fatal|back_?trace|traceback|(?:print|dump)_?stack|stack_?trace|signal|sig_?handl|handler|terminate|assert|_throw|Throw\b|WriteFailureInfo|_error_freeze"
    r"|handle_?error|^__(?!kmp|\w+_MOD_)|^mxm_|^for__|^for_(?:emit|stop|write_seq|abort)|_die\b|(?:^|_|[a-z])[Ee]rr(?:or)?(?:_\w{0,12})?$|_er$"
    r"|^(?:raise|gsignal|killpg|__GI_\w{1,30}|__restore_rt|pthread_kill\w{0,20}|kill|_exit|exit|__kernel_\w{1,30}|_{0,2}sigaction|_{0,2}funlockfile|opal_\w{1,60}|ucs_\w{1,60})$",
    re.IGNORECASE,
)
_BEGINS = late(
    r"^(?:main|MAIN__|_start|__libc_start_\w{1,20}|__libc_init_first|start_thread|clone\d?|_dl_\w{1,30}|call_init)$"
)
_SYSTEM = late(
    r"\.[Ss]$|(?:^|/)(?:lib(?:c|pthread|m|gcc_s|stdc\+\+|gfortran|ucs|dl)|ld-linux\S{0,20})(?:[-.]|$)"
)
_OF_THREADS = late(r"__kmp|GOMP_|gomp_")
_UNNAMED = 2  # frames without a name, below one that has
_OF_MPI = late(r"^P?MPI_[A-Z][a-z]\w{1,40}$|^p?mpi_[a-z_]{3,40}$")


def frame_of(text: str) -> Frame | None:
    """The frame that a line is; of one without a name that is "", None for another line."""
    match = _INTEL.match(text)
    if match is not None and (match["line"].isdigit() or match["file"] in _UNKNOWN):
        line = int(match["line"]) if match["line"].isdigit() else 0
        return _frame(match["name"], match["file"] if line else match["image"], line)
    match = _UCX.match(text) or _GNU.match(text)
    if match is not None:
        return _frame(match["name"], match["file"] or "", int(match["line"] or 0))
    match = _IN_IMAGE.match(text) or _OPEN_MPI.match(text)
    if match is not None:
        return _frame(match["name"] or "", match["image"], 0)
    match = _WHOLE.match(text)
    if match is not None:
        called = plain_name(match["name"]).partition("(")[0]
        return _frame(called.rpartition(" ")[2], match["image"], 0)
    match = _GLOG.match(text)
    if match is not None:
        return _frame(match["name"], "", 0)
    if _EMPTY.match(text):
        return Frame("", "", 0)
    found = frame_of_debugger(text)
    if found is None:
        return None
    return _frame(found.frame.name, found.frame.file, found.frame.line)


def python_frame_of(text: str) -> Frame | None:
    """The same of a line that faulthandler prints; others print such lines of any stack."""
    match = _PYTHON.match(text)
    return Frame(match["name"], match["file"], int(match["line"])) if match is not None else None


def is_broken(text: str) -> bool:
    """Whether it is the first part of a frame, of which the next line has the rest."""
    return _BROKEN.match(text) is not None


def is_caught(text: str) -> bool:
    """Whether it is a frame of the handler by which a library catches the signals of crashes."""
    if "error_signal_handler" not in text and "killpg" not in text:
        return False
    frame = frame_of(text)
    return frame is not None and _CAUGHT.match(frame.name) is not None


def source_of(text: str) -> tuple[str, int] | None:
    """File and line of the frame above, which GNU's runtime prints below it."""
    match = _AT.match(text)
    return (match["file"], int(match["line"])) if match is not None else None


def is_signal(text: str) -> bool:
    """Whether the frames above it are those of the handler of a signal."""
    return _HANDLER.match(text) is not None


def is_heading(text: str) -> bool:
    """Whether it says that a stack comes next."""
    small = text.lower()
    return "routine" in small and " pc " in small


def chosen(frames: list[Frame]) -> Frame | None:
    """Where the process was: the innermost frame with a name, and the line of the program's own source that
    it was called from; None where no frame has a name.
    """
    named = [f for f in frames if f.name and not _BEGINS.match(f.name)]
    named = [f for f in named if not _NEXT_TO.match(f.name)]
    inner = [f for f in named if not _ENDS.search(f.name) and not _is_systems(f)]
    begins = [f for f in frames if _BEGINS.match(f.name) and not _SYSTEM.search(f.file)]
    if not inner:
        return next((f for f in begins if f.line), None)
    first = inner[0]
    own = next((f for f in [*inner, *begins] if f.line), None)
    if own is not None:
        name = first.name if _OF_MPI.match(first.name) else own.name
        return Frame(name, own.file, own.line)
    if _is_far(first, frames):
        return None
    caller = next((f for f in inner if f.file != first.file), None)
    if ".so" not in first.file:
        return Frame(first.name, "", 0)  # the program's own name says nothing
    if caller is None:
        return first
    return Frame(first.name, f"{first.file}, called by {caller.file}", 0)


def _is_systems(frame: Frame) -> bool:
    """Whether it is of the system's libraries; where a library of threads crashed, that is told."""
    if _SYSTEM.search(frame.file) is not None:
        return True
    return native_program.is_systems(frame) and _OF_THREADS.match(frame.name) is None


def _is_far(first: Frame, frames: list[Frame]) -> bool:
    """Whether it called others that have no name: where the process was does not show then; of a call of MPI's
    what is below it belongs to it.
    """
    before = frames[: frames.index(first)]
    between = 0
    for frame in before:
        if frame.name:
            between = 0
        elif not _SYSTEM.search(frame.file):
            between += 1
    return between > _UNNAMED and _OF_MPI.match(first.name) is None


def _frame(name: str, file: str, line: int) -> Frame:
    plain = "" if name in _UNKNOWN else _readable(name)
    if file in _UNKNOWN:
        return Frame(plain, "", 0)
    return Frame(plain, file if line else _base(file), line)


def _base(file: str) -> str:
    return file.rpartition("/")[2]


def _readable(name: str) -> str:
    """A name as the source has it: of C++ without its arguments, of GNU's Fortran with its module."""
    of_module = _FORTRAN.match(name)
    if of_module is not None:
        return f"{of_module[1]}::{of_module[2]}"
    match = _MANGLED.match(name)
    if match is None:
        return "" if name.startswith(("_Z", "0x")) else plain_name(name.partition("@")[0])[:80]
    rest = name[match.end() :]
    parts = ["std"] if rest.startswith("St") else []
    rest = rest.removeprefix("St")
    while (length := re.match(r"\d{1,3}", rest)) is not None:
        end = length.end() + int(length[0])
        parts.append(rest[length.end() : end])
        rest = rest[end:]
    return "::".join(part for part in parts if part)[:80]
