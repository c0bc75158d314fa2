"""Stacks of one process as tools other than py-spy print them: faulthandler, pystack and gdb.

faulthandler and gdb print the innermost frame first, pystack last. faulthandler names no process
and prints its main thread last; in the other two the main thread has the number of the process.
gdb's `py-bt` prints Python's frames in place of native ones. A file of pystack or gdb may have
several processes, one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from ..errors import BadInput
from ..files import read_regular
from ..model.capture import Frame, ThreadSample
from ..text.late import late
from . import (
    called_stacks,
    frames_without_numbers,
    grepped_stacks,
    merged_stacks,
    native_frames,
    native_headings,
    native_text,
)
from .host_groups import parts
from .pyspy_frames import MAX_NAME
from .pyspy_text import MAX_FILE, TextFile, TextProcess, node_of
from .pyspy_text import read_file as read_pyspy

_FAULT_THREAD = late(
    r"^(?:Current thread|Thread) (0x[0-9a-fA-F]{1,16})(?: \[[^\]]{0,64}\])? \(most recent call first\):$"
)
_FAULT_FRAME = late(r'^  File "([^"]*)", line ([0-9]{1,9}) in (.*)$')
_PYSTACK_THREAD = late(r"^Traceback for thread ([0-9]{1,18}) .*\(most recent call last\):$")
_PYSTACK_FRAME = late(
    r'^ {4}\((?:Python|C)\) File "([^"]*)", line ([0-9]{1,9}), in (.*?)(?: \([^)]*\))?$'
)
_GDB_THREAD = late(r'^Thread ([0-9]{1,9}) \(.{0,64}\bLWP ([0-9]{1,18})\b[^"]{0,8}(?:"(.{0,64})")?')
# A frame of Python by any of these tools.
_OF_PYTHON = late(r'^ +(?:\((?:Python|C)\) )?File "[^"]*", line [0-9]{1,9},? in ', re.M)
_NATIVE = late(r"^[ \t]*(?:#[0-9]{1,4} |(?:\* )?frame #[0-9])", re.M)
_GDB_BYE = late(r"^\[Inferior [0-9]{1,9} \(process ([0-9]{1,18})\) detached\]$")
_PY_BT = "Traceback (most recent call first):"
_PY_BT_FRAME = late(r'^  File "([^"]*)", line ([0-9]{1,9}), in (.*)$')
_GDB_FRAME = late(r"^#[0-9]{1,6} +(?:0x[0-9a-f]{1,16} in )?([^\s(][^(]{0,400}?) \(")
_GDB_PLACE = late(r"\) (?:at (\S{1,400}?):([0-9]{1,9})|from (\S{1,400}))$")


def is_faulthandler(head: bytes) -> bool:
    """Whether a file begins with stacks that faulthandler printed while the process went on; after
    a fatal error they belong to its job's log.
    """
    lines = head.decode("utf-8", "replace").split("\n")
    first = next((line.strip() for line in lines if line.strip()), "")
    return first.startswith("Timeout (") or _FAULT_THREAD.match(first) is not None


def is_alone(head: bytes) -> bool:
    """Whether a file is of stacks and nothing else: faulthandler's, or Python's frames as gdb prints
    them, which are no traceback of an error.
    """
    text = head.decode("utf-8", "replace")
    py_bt = _PY_BT in text and "(most recent call last)" not in text
    return py_bt or is_faulthandler(head)


def is_native(head: bytes) -> bool:
    """Whether a text has a stack that begins at its frame 0, and no frame of Python."""
    text = head.decode("utf-8", "replace")
    if native_frames.lists_threads(text) and _OF_PYTHON.search(text) is None:
        return True
    if _NATIVE.search(text) is None or _OF_PYTHON.search(text) is not None:
        return False
    last = -1
    for line in native_frames.joined(text.splitlines()):
        frame = native_frames.read(line)
        if frame is not None and (last, frame.number) == (0, 1):
            return True
        last = frame.number if frame is not None else last
    return False


def read_file(path: Path) -> TextFile:
    """The processes and errors of one file, of whichever of the tools.

    Raises:
        BadInput: it cannot be read, is empty, or is the output of none of them.
    """
    try:
        text = read_regular(path, MAX_FILE).decode("utf-8", "replace")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    if merged := merged_stacks.read(text) or grepped_stacks.read(text) or called_stacks.read(text):
        return TextFile(merged, native=True)
    if _OF_PYTHON.search(text) is None and (native := _native(text, path)):
        return TextFile(native, native=True, world_size=native_headings.world_size(text))
    grouped = [process for host, own in parts(text) for process in parse(own, host)]
    processes = grouped or parse(text, node_of(path))
    return TextFile(processes) if processes else read_pyspy(path)


def _native(text: str, path: Path) -> list[TextProcess]:
    """The processes of a text without any frame of Python."""
    if _NATIVE.search(text) is None and not native_frames.lists_threads(text):
        text = frames_without_numbers.numbered(text)
    if not text:
        return []
    try:
        return _by_host(text, path)
    except BadInput as error:
        raise BadInput(f"{path.name}: {error}") from error


def _by_host(text: str, path: Path) -> list[TextProcess]:
    by_host = [process for host, own in parts(text) for process in native_text.parse(own, host)]
    processes = by_host or native_text.parse(text, "")
    if len(processes) == 1 and processes[0].rank < 0:
        processes[0].rank = native_text.rank_of(path.stem)
    return processes


def parse(text: str, node: str) -> list[TextProcess]:
    """The processes of a text; none where it is of none of these tools."""
    faults: dict[int, ThreadSample] = {}
    numbered: list[_Numbered] = []
    thread: ThreadSample | None = None
    for line in text.splitlines():
        if (match := _FAULT_THREAD.match(line)) is not None:
            thread = ThreadSample(tid=int(match[1], 16))
            faults.pop(thread.tid, None)  # dumped again: the last one holds
            faults[thread.tid] = thread
        elif (started := _numbered(line)) is not None:
            thread = started.thread
            numbered.append(started)
        elif line == _PY_BT and (thread is None or thread.frames):
            thread = ThreadSample(tid=0)  # gdb was asked for one thread, and names none
            numbered.append(_Numbered(thread, at=1))
        elif (match := _GDB_BYE.match(line)) is not None:
            if thread is not None and not thread.tid:
                thread.tid = int(match[1])
            thread = None
        elif thread is not None and (frame := _frame(line)) is not None:
            thread.frames.append(frame)
    if numbered:
        return _by_number(numbered, node)
    main_last = list(faults.values())
    return [_process(main_last, main_last[-1], 0, node)] if main_last else []


class _Numbered(Struct):
    """A thread whose number in the system is printed, and its place: where that is not new, another
    process begins.
    """

    thread: ThreadSample
    at: int  # gdb's own number of it; pystack: 0
    outermost_first: bool = False


def _by_number(threads: Sequence[_Numbered], node: str) -> list[TextProcess]:
    """The processes of these threads in their order; of one that was dumped again, the last."""
    found: dict[int, TextProcess] = {}
    for one in _parted(threads):
        for thread in one:
            if thread.outermost_first:
                thread.thread.frames.reverse()
        main = min((t.thread for t in one), key=lambda t: t.tid)
        found[main.tid] = _process([t.thread for t in one], main, main.tid, node)
    return list(found.values())


def _parted(threads: Sequence[_Numbered]) -> list[list[_Numbered]]:
    """pystack prints the newest thread first, so that numbers fall; gdb's own numbers come once."""
    parts: list[list[_Numbered]] = []
    for thread in threads:
        part = parts[-1] if parts else []
        again = any(t.at == thread.at for t in part) if thread.at else False
        rises = bool(part) and not thread.at and thread.thread.tid >= part[-1].thread.tid
        if not part or again or rises:
            parts.append([])
        parts[-1].append(thread)
    return parts


def _process(threads: list[ThreadSample], main: ThreadSample, pid: int, node: str) -> TextProcess:
    main.name = "MainThread"
    return TextProcess(pid, "", node, threads)


def _numbered(line: str) -> _Numbered | None:
    if (match := _PYSTACK_THREAD.match(line)) is not None:
        return _Numbered(ThreadSample(tid=int(match[1])), at=0, outermost_first=True)
    if (match := _GDB_THREAD.match(line)) is not None:
        return _Numbered(ThreadSample(tid=int(match[2]), name=match[3] or ""), at=int(match[1]))
    return None


def _frame(line: str) -> Frame | None:
    found = _FAULT_FRAME.match(line) or _PYSTACK_FRAME.match(line) or _PY_BT_FRAME.match(line)
    if found is not None:
        return Frame(found[3][:MAX_NAME], found[1][:MAX_NAME], int(found[2]))
    native = _GDB_FRAME.match(line)
    if native is None:
        return None
    place = _GDB_PLACE.search(line)
    file = (place[1] or place[3] or "") if place is not None else ""
    return Frame(native[1], file, int(place[2]) if place is not None and place[2] else 0)
