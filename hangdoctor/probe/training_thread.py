"""The thread of a process that trains, by what each has recorded: Ray and others have it beside the main one."""

from __future__ import annotations

import struct
import threading

from . import format as fmt
from .record_core import read_proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .box import BoxWriter

_WORD = 8
_ROW_WORDS = fmt.THREAD.size // _WORD
_SET_UP = 2  # first records of a process, that may be of set-up alone


def find(box: BoxWriter) -> int:
    """Its number; 0 for the main one, which may have set torch.distributed up alone."""
    words, begin, rows = box.words, *box.regions["threads"][:2]
    newest, found = -1, 0
    for at in range(begin // _WORD, begin // _WORD + rows * _ROW_WORDS, _ROW_WORDS):
        if not words[at]:
            break
        if words[at] == box.pid:
            if words[at + 1] > _SET_UP or _is_inside(box, words[at + 1]):
                return 0
        elif words[at + 1] > newest:  # 0: its collectives are all C++'s
            newest, found = words[at + 1], words[at]
    return found


def is_left(box: BoxWriter) -> bool:
    """Whether the process ends while a thread of it trains: that is no end of the program's own, as where
    Ray takes its workers down because their driver has gone.
    """
    [state] = struct.unpack_from(fmt.H_STATE[1], box.map, fmt.H_STATE[0])
    tid = 0 if state == fmt.FINISHED else find(box)
    return tid > 0 and _runs(box, tid)


def _runs(box: BoxWriter, tid: int) -> bool:
    """Whether the thread is there. The kernel may still have one that Python has joined a moment ago: of
    those that Python names it is asked itself.
    """
    if tid in {thread.native_id for thread in threading.enumerate()}:
        return True
    return not _name(box, tid) and bool(read_proc(f"/proc/self/task/{tid}/stat", 64))


def _name(box: BoxWriter, tid: int) -> bytes:
    """As Python called it when its slot was made; empty for a thread of C++."""
    begin, rows, width = box.regions["threads"]
    for at in range(begin, begin + rows * width, width):
        known, _, _, _, name = fmt.THREAD.unpack_from(box.map, at)
        if known == tid:
            return bytes(name).rstrip(b"\0")
    return b""


def _is_inside(box: BoxWriter, last: int) -> bool:
    """Whether a thread's last operation, by its serial number, has not ended."""
    first, records, _ = box.regions["ring"]
    record = first // _WORD + last % records * fmt.RECORD_WORDS
    return last > 0 and not box.words[record + fmt.LEFT_WORD]
