"""Where the job called from: the innermost frame that is neither torch nor a wrapper around
torch.distributed.
"""

from __future__ import annotations

import os
from types import CodeType, FrameType

from .box import BoxWriter

_SITES_MAX = 4096
_HERE = os.path.dirname(__file__) + os.sep  # noqa: PTH120 - compared with co_filename, which is a plain string
# DeepSpeed's and Megatron's thin layers over torch.distributed: their callers say more.
_WRAPPERS = (
    f"{os.sep}torch{os.sep}",
    f"{os.sep}deepspeed{os.sep}comm{os.sep}",
    f"{os.sep}deepspeed{os.sep}utils{os.sep}",
    f"{os.sep}deepspeed{os.sep}runtime{os.sep}pipe{os.sep}p2p.py",
)


def is_wrapper(filename: str) -> bool:
    """Whether a file's frames are skipped on the way to the call site."""
    return filename.startswith(_HERE) or any(part in filename for part in _WRAPPERS)


class Sites:
    """Ids of call sites, by code object and instruction; -1 marks code that is skipped."""

    def __init__(self, box: BoxWriter) -> None:
        self._box = box
        self.known: dict[tuple[int, int], int] = {}
        self._skipped: dict[int, bool] = {}
        # A code object's id is only its own while it lives.
        self._kept: dict[int, CodeType] = {}

    def find(self, frame: FrameType | None) -> int:
        """The id of the site above `frame`, interned at its first sight; 0 when the table is full."""
        first = outermost = frame
        while frame is not None:
            code = frame.f_code
            skipped = self._skipped.get(id(code))
            if skipped is None:
                skipped = self._judge(code)
            if not skipped:
                break
            outermost = frame
            frame = frame.f_back
        frame = frame or outermost
        if frame is None:
            return 0
        key = (id(frame.f_code), frame.f_lasti)
        site = self.known.get(key)
        if site is None:
            code = frame.f_code
            site = self._box.intern(f"{code.co_name} ({code.co_filename}:{frame.f_lineno})")
            # Only the caller itself may be remembered by its own key: a skipped frame has many callers.
            if (
                len(self.known) < _SITES_MAX
                and id(code) in self._kept
                and (frame is first or not skipped)
            ):
                self.known[key] = site
        return site

    def judge(self, code: CodeType) -> int:
        """For the extension: see `Recorder.judge`."""
        skipped = self._skipped.get(id(code))
        if skipped is None:
            skipped = self._judge(code)
        return int(skipped) + (0 if id(code) in self._kept else 2)

    def locate(self, frame: FrameType | None, code: CodeType | None) -> int:
        """For the extension: see `Recorder.locate`."""
        site = self.find(frame)
        while frame is not None and self.judge(frame.f_code) & 1:
            frame = frame.f_back
        kept = frame is not None and frame.f_code is code and id(code) in self._kept
        return 2 * site + (1 if kept and site else 0)

    def _judge(self, code: CodeType) -> bool:
        skipped = is_wrapper(code.co_filename)
        if len(self._kept) < _SITES_MAX:
            self._kept[id(code)] = code
            self._skipped[id(code)] = skipped
        return skipped
