"""Stacks of one process as tools other than py-spy print them: faulthandler, pystack and gdb.

faulthandler and gdb print the innermost frame first, pystack last. faulthandler names no process
and prints its main thread last; in the other two the main thread has the number of the process.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import BadInput
from ..files import read_regular
from ..model.capture import Frame, ThreadSample
from .pyspy import MAX_NAME
from .pyspy_text import MAX_FILE, TextFile, TextProcess, node_of
from .pyspy_text import read_file as read_pyspy

_FAULT_THREAD = re.compile(
    r"^(?:Current thread|Thread) (0x[0-9a-fA-F]{1,16})(?: \[[^\]]{0,64}\])? \(most recent call first\):$"
)
_FAULT_FRAME = re.compile(r'^  File "([^"]*)", line ([0-9]{1,9}) in (.*)$')
_PYSTACK_THREAD = re.compile(r"^Traceback for thread ([0-9]{1,18}) .*\(most recent call last\):$")
_PYSTACK_FRAME = re.compile(
    r'^ {4}\((?:Python|C)\) File "([^"]*)", line ([0-9]{1,9}), in (.*?)(?: \([^)]*\))?$'
)
_GDB_THREAD = re.compile(
    r'^Thread [0-9]{1,9} \(.{0,64}\bLWP ([0-9]{1,18})\b[^"]{0,8}(?:"(.{0,64})")?'
)
_GDB_FRAME = re.compile(r"^#[0-9]{1,6} +(?:0x[0-9a-f]{1,16} in )?([^\s(][^(]{0,400}?) \(")
_GDB_PLACE = re.compile(r"\) (?:at (\S{1,400}?):([0-9]{1,9})|from (\S{1,400}))$")


def is_faulthandler(head: bytes) -> bool:
    """Whether a file begins with stacks that faulthandler printed while the process went on; after
    a fatal error they belong to its job's log.
    """
    lines = head.decode("utf-8", "replace").split("\n")
    first = next((line.strip() for line in lines if line.strip()), "")
    return first.startswith("Timeout (") or _FAULT_THREAD.match(first) is not None


def read_file(path: Path) -> TextFile:
    """The processes and errors of one file, of whichever of the tools.

    Raises:
        BadInput: it cannot be read, is empty, or is the output of none of them.
    """
    try:
        text = read_regular(path, MAX_FILE).decode("utf-8", "replace")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    process = parse(text, node_of(path))
    return TextFile([process]) if process is not None else read_pyspy(path)


def parse(text: str, node: str) -> TextProcess | None:
    """The one process of a text; None where it is of none of these tools."""
    faults: dict[int, ThreadSample] = {}
    numbered: dict[int, ThreadSample] = {}
    thread: ThreadSample | None = None
    for line in text.splitlines():
        started = _thread(line)
        if started is not None:
            thread = started
            known = faults if _FAULT_THREAD.match(line) else numbered
            known.pop(thread.tid, None)  # dumped again: the last one holds
            known[thread.tid] = thread
        elif thread is not None and (frame := _frame(line)) is not None:
            thread.frames.append(frame)
    if numbered and _by_pystack(text):
        for one in numbered.values():
            one.frames.reverse()
    return _process(numbered or faults, node, known_pid=bool(numbered))


def _by_pystack(text: str) -> bool:
    return re.search(r"^Traceback for thread ", text, re.M) is not None


def _process(threads: dict[int, ThreadSample], node: str, known_pid: bool) -> TextProcess | None:
    if not threads:
        return None
    main = threads[min(threads)] if known_pid else list(threads.values())[-1]
    main.name = "MainThread"
    pid = main.tid if known_pid else 0
    return TextProcess(pid, "", node, list(threads.values()))


def _thread(line: str) -> ThreadSample | None:
    if (match := _FAULT_THREAD.match(line)) is not None:
        return ThreadSample(tid=int(match[1], 16))
    if (match := _PYSTACK_THREAD.match(line)) is not None:
        return ThreadSample(tid=int(match[1]))
    if (match := _GDB_THREAD.match(line)) is not None:
        return ThreadSample(tid=int(match[1]), name=match[2] or "")
    return None


def _frame(line: str) -> Frame | None:
    found = _FAULT_FRAME.match(line) or _PYSTACK_FRAME.match(line)
    if found is not None:
        return Frame(found[3][:MAX_NAME], found[1][:MAX_NAME], int(found[2]))
    native = _GDB_FRAME.match(line)
    if native is None:
        return None
    place = _GDB_PLACE.search(line)
    file = (place[1] or place[3] or "") if place is not None else ""
    return Frame(native[1], file, int(place[2]) if place is not None and place[2] else 0)
