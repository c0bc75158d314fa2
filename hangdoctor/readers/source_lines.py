"""Lines of programs, read without trust in the file system: it may be the very one that does not
answer.

A thread of its own reads each file, and only so long is waited for it. Then no further file is read
for a while: a stack without its source lines is worth more than a capture that never ends.
"""

from __future__ import annotations

import io
import os
import threading
import time
import tokenize
from pathlib import Path

from ..text.late import late

_PATIENCE_S = 2.0  # for one file
_PAUSE_S = 60.0  # after one that did not come
_MAX_CHARACTERS = 8 << 20
_MOST_LINES = 12  # that a call goes on
# Strings, and comments after them.
_TEXT = late(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|#.*""")


class Sources:
    """Files as they were when they were first asked for."""

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._files: dict[str, list[str]] = {}
        self._changed: dict[str, float] = {}
        self._guard = threading.Lock()
        self._again_at = 0.0  # monotonic: until then nothing is read

    def line(self, file: str, number: int) -> str:
        """One line without its ends; empty where the file is not readable here, or not in time."""
        lines = self.lines(file)
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""

    def call(self, file: str, number: int) -> str:
        """The line, and where it leaves a bracket open, what follows up to the closing one, as one
        line: formatters put a call's `group=` on a line of its own.
        """
        lines = self.lines(file)
        if not 0 < number <= len(lines):
            return ""
        whole = lines[number - 1].strip()
        text = _without_comment(whole)
        for line in lines[number : number + _MOST_LINES]:
            if _depth(text) <= 0:
                break
            text = _joined(text, _without_comment(line))
        return text if whole != text and not _depth(text) else whole

    def call_as_of(self, file: str, number: int, at_s: float) -> str:
        """The same of a process that began at `at_s`, seconds since the epoch: empty where the file was
        changed later.
        """
        found = self.call(file, number)
        return found if self._changed.get(file, at_s) <= at_s else ""

    def lines(self, file: str) -> list[str]:
        """All lines; none where the file is not readable here, or not in time."""
        with self._guard:
            lines = self._files.get(file)
            return self._read(file) if lines is None else lines

    def _read(self, file: str) -> list[str]:
        if time.monotonic() < self._again_at:
            return []
        found: list[str] = []

        def read() -> None:
            lines, changed = _lines_of(file)
            self._changed[file] = changed
            found.extend(lines)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        reader.join(self._patience_s)
        if reader.is_alive():
            self._again_at = time.monotonic() + _PAUSE_S
            return []
        self._files[file] = found
        return found


def _without_comment(line: str) -> str:
    return _TEXT.sub(lambda found: found[1] or "", line).strip()


def _joined(text: str, line: str) -> str:
    if line[:1] in (")", "]", "}"):
        return text.removesuffix(",") + line
    return text + ("" if text.endswith(("(", "[", "{")) else " ") + line


def _depth(text: str) -> int:
    """Brackets that are open at its end, those in strings aside."""
    bare = _TEXT.sub("", text)
    return sum(bare.count(c) for c in "([{") - sum(bare.count(c) for c in ")]}")


def _lines_of(file: str) -> tuple[list[str], float]:
    """All lines, and when the file was changed last."""
    try:
        with Path(file).open("rb") as raw:
            if not _may_be_shown(raw.fileno()):
                return [], 0.0
            changed = os.fstat(raw.fileno()).st_mtime
            encoding, _ = tokenize.detect_encoding(raw.readline)
            raw.seek(0)
            text = io.TextIOWrapper(raw, encoding).read(_MAX_CHARACTERS)
            # Not splitlines(): a form feed ends no line of a program.
            return text.split("\n"), changed
    except (OSError, SyntaxError, ValueError):
        return [], 0.0


def _may_be_shown(fd: int) -> bool:
    """Whether an open file is a program. Root may read any file, and any user can make a process
    whose frames name a link `x.py` to one.
    """
    return os.geteuid() != 0 or Path(f"/proc/self/fd/{fd}").readlink().suffix == ".py"


_sources = Sources()
line = _sources.line
call = _sources.call
call_as_of = _sources.call_as_of
lines = _sources.lines
