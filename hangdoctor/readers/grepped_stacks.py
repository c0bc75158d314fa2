"""Frames that were searched out of the debugger's files, one file for each process:

bt_812.out:#11 0x7f05 in relax (n=4) at grid.c:7          grep relax bt_*.out
bt_813.out:120:#3  0x7f05 in poll () from /lib64/libc.so.6    grep -n
"""

from __future__ import annotations

from pathlib import Path

from ..model.capture import ThreadSample
from ..model.frame import Frame
from ..text.late import late
from . import native_frames, native_text
from .pyspy_text import TextProcess

_LINE = late(r"([\w./@+=-]{1,300}?)[:-](?:[0-9]{1,9}[:-])?(#[0-9]{1,4} {1,4}\S.{0,4000})")
_PID = late(r"(?<![0-9])([0-9]{2,9})(?![0-9])")
_LEAST = 2  # files
_MOST = 4096


class _Seen:
    """What the lines of one file show: its first stack, of which frames may be missing."""

    def __init__(self) -> None:
        self._frames: dict[int, Frame] = {}
        self._full = False  # another stack of the file has begun

    def take(self, one: native_frames.NativeFrame) -> None:
        self._full = self._full or one.number in self._frames
        if not self._full:
            self._frames[one.number] = one.frame

    def frames(self) -> list[Frame]:
        """Innermost first."""
        found: list[Frame] = []
        last = -1
        for number, frame in sorted(self._frames.items()):
            if number > last + 1:
                found.append(Frame("??", "", 0))
            found.append(frame)
            last = number
        return found


def read(text: str) -> list[TextProcess]:
    """The processes, one for each file; [] of other texts."""
    found: dict[str, _Seen] = {}
    for line in text.splitlines():
        match = _LINE.match(line) if "#" in line[:330] else None
        frame = native_frames.read(match[2]) if match is not None else None
        if match is None or frame is None or frame.frame.name == "in":
            continue  # a line that was cut behind the address
        if len(found) < _MOST:
            found.setdefault(match[1], _Seen()).take(frame)
    if len(found) < _LEAST:
        return []
    return [_process(name, seen.frames()) for name, seen in found.items()]


def _process(name: str, frames: list[Frame]) -> TextProcess:
    stem = Path(name).stem
    numbers = _PID.findall(stem)
    rank = native_text.rank_of(stem)
    pid = int(numbers[0]) if len(numbers) == 1 and rank < 0 else 0
    thread = ThreadSample(tid=pid, name="MainThread", frames=frames)
    label = "" if pid or rank >= 0 else f"the process of {Path(name).name}"
    return TextProcess(pid, "", "", [thread], rank=rank, label=label)
