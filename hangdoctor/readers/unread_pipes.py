"""Children that are blocked writing into a pipe whose reading end their rank has: a rank that waits
for such a child, and does not read, waits for ever.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from ..model.capture import Process, RankCapture
from ..text.late import late

_WRITES = late(r"^(?:write|writev)\(\d+ -> (pipe:\[\d+\])\)$")
_ACCESS = 0o3  # of a descriptor's flags; 0: it is open for reading


def attach(ranks: Iterable[RankCapture]) -> None:
    """Set `fills_pipe` of these children, as their last sample shows them."""
    for rank in ranks:
        filled = {child.pid: pipes for child in rank.children if (pipes := _filled(child))}
        if not filled:
            continue
        read = _read_ends(rank.pid)
        for child in rank.children:
            child.fills_pipe = bool(filled.get(child.pid, set()) & read)


def _filled(process: Process) -> set[str]:
    """The pipes that its threads are blocked writing into."""
    threads = process.samples[-1].threads if process.samples else []
    matches = [_WRITES.match(thread.syscall) for thread in threads]
    return {match[1] for match in matches if match is not None}


def _read_ends(pid: int) -> set[str]:
    """The pipes that a process has open for reading."""
    return {target for target, reads in ends_of(pid) if reads}


def ends_of(pid: int) -> set[tuple[str, bool]]:
    """The pipes that a process has open, `pipe:[7]`, and whether for reading; none where it has ended
    or is not ours to read.
    """
    found: set[tuple[str, bool]] = set()
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return found
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # it has been closed meanwhile
            target = str(descriptor.readlink())
            if target.startswith("pipe:["):
                found.add((target, _is_read(pid, descriptor.name)))
    return found


def _is_read(pid: int, descriptor: str) -> bool:
    for line in Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "flags":
            return int(value.strip(), 8) & _ACCESS == 0
    return False
