"""What a rank has started: its data-loader workers, compile workers and helpers."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence

import psutil

from ..model.capture import Process
from ..text import redaction
from ..text.plain import readable
from . import proc

_MOST = 512  # descendants of one rank that a capture lists
_WORDS = 60  # of the command line of one


def parents() -> dict[int, list[int]]:
    """{pid: its children} of every process of this host, read once for all ranks."""
    found: dict[int, list[int]] = defaultdict(list)
    for pid in psutil.pids():
        fields = proc.stat_fields(pid)
        if len(fields) > 1:
            found[int(fields[1])].append(pid)
    return found


def _below(pid: int, family: Mapping[int, Sequence[int]]) -> list[int]:
    """Descendants of `pid`, nearest first, up to `_MOST`."""
    found: list[int] = []
    waiting = deque(family.get(pid, ()))
    while waiting and len(found) < _MOST:
        found.append(waiting.popleft())
        waiting.extend(family.get(found[-1], ()))
    return found


def families(pids: Iterable[int]) -> list[list[Process]]:
    """The living descendants of each process, as `children_of`."""
    family = parents()
    return [children_of(pid, family) for pid in pids]


def children_of(pid: int, family: Mapping[int, Sequence[int]]) -> list[Process]:
    """The living descendants of a rank, oldest first; `family` is what `parents` returned."""
    children: list[Process] = []
    for number in _below(pid, family):
        try:
            process = psutil.Process(number)
        except psutil.Error:
            continue
        try:
            argv = redaction.arguments([readable(word) for word in process.cmdline()[:_WORDS]])
        except psutil.ZombieProcess:
            argv = []  # a dead worker that no one has waited for explains its parent's wait
        except psutil.Error:
            continue
        try:
            children.append(
                Process(
                    process.pid,
                    process.ppid(),
                    readable(process.name()),
                    argv,
                    started=process.create_time(),
                )
            )
        except psutil.Error:
            continue
    return sorted(children, key=lambda c: (c.started, c.pid))
