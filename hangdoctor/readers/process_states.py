"""States of processes as people collect them beside stacks: `ps` tables, and the kernel's reports
of tasks that hang in uninterruptible sleep.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..errors import BadInput
from ..files import read_regular
from ..text.late import late
from ..text.ranges import number_in

_MAX_FILE = 64 << 20
_HEAD = late(r"^\s*(?=.*\bPID\b)(?=.*\b(?:STAT|S)\b).*$")
_HUNG = late(r"INFO: task \S{1,64}:([0-9]{1,18}) blocked for more than [0-9]{1,9} seconds")
_STATES = frozenset("RSDTtZXI")


def read_files(paths: Iterable[Path]) -> dict[int, str]:
    """Process id -> R, S, D, T, t, Z ..., from those of the files that have any."""
    found: dict[int, str] = {}
    for path in paths:
        try:
            data = read_regular(path, _MAX_FILE)
        except (OSError, BadInput):
            continue  # whoever reads it for its stacks says what is wrong with it
        found.update(parse(data.decode("utf-8", "replace")))
    return found


def parse(text: str) -> dict[int, str]:
    """The states that a text tells, later lines over earlier ones."""
    found: dict[int, str] = {}
    columns: tuple[int, int] | None = None
    for line in text.splitlines():
        words = line.split()
        if _HEAD.match(line) and "PID" in words:
            state = next((w for w in ("STAT", "S") if w in words), "")
            columns = (words.index("PID"), words.index(state)) if state else None
        elif (hung := _HUNG.search(line)) is not None:
            found[int(hung[1])] = "D"
        elif columns is not None and len(words) > max(columns):
            pid, state = number_in(words[columns[0]]), words[columns[1]][:1]
            if pid > 0 and state in _STATES:
                found[pid] = state
    return found
