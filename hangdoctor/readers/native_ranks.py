"""The processes of native stacks as one capture: as ranks where the text or the files' names say which
rank each is, else each by what does tell it from the others. No rank is made up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..model.capture import JobCapture, NodeCapture, ProcessSample, RankCapture
from ..text.late import late
from .pyspy_text import TextProcess

_APART_S = 1.0  # between two stacks of a process in one text: no clock tells
# In the name of a file: its stack stands for several
_SEVERAL = late(r"(?:^|[-_.])(?:ranks|processes|procs|tasks)(?=[-_.]|$)", re.I)
_PART = "the files do not show how many ranks the job has: there may be more than those whose stacks they hold"
_UNNAMED = (
    "neither the text nor the files' names show ranks: processes are named by process id or by file"
)


def read(
    by_file: Mapping[Path, Sequence[TextProcess]], world_size: int, notes: list[str]
) -> JobCapture:
    """One capture of all processes; `world_size`: 0 where no launcher's command line shows it."""
    named: list[tuple[str, TextProcess]] = []
    for path, some in by_file.items():
        once = _once(some)
        named += [
            (_name(process, place, len(once), path), process) for place, process in enumerate(once)
        ]
    processes = [process for _, process in named]
    ranks = [process.rank for process in processes]
    if min(ranks) >= 0 and len(set(ranks)) == len(ranks):
        return _of_ranks(processes, world_size, notes)
    captures = [_capture(process, place, 0) for place, process in enumerate(processes)]
    return JobCapture(
        job="text",
        nodes=[NodeCapture("", "text", captures)],
        world_size=world_size,
        origin="files",
        native=True,
        names=[name for name, _ in named],
        sizes=[process.many for process in processes],
        notes=[*notes, _UNNAMED] if len(named) > 1 else notes,
    )


def _of_ranks(processes: list[TextProcess], world_size: int, notes: list[str]) -> JobCapture:
    least = max(process.rank for process in processes) + 1
    known = world_size >= least
    size = world_size if known else least
    nodes: dict[str, NodeCapture] = {}
    for process in processes:
        node = nodes.setdefault(process.node, NodeCapture(process.node, "text"))
        node.ranks.append(_capture(process, process.rank, size))
    return JobCapture(
        job="text",
        nodes=list(nodes.values()),
        world_size=size,
        origin="files",
        native=True,
        part=not known,
        notes=notes if known else [*notes, _PART],
    )


def _capture(process: TextProcess, rank: int, size: int) -> RankCapture:
    last = ProcessSample(0.0, threads=process.threads)
    samples = [last]
    if process.earlier:
        last.at_s = _APART_S
        samples = [ProcessSample(0.0, threads=process.earlier), last]
    crash = process.signal
    return RankCapture(
        gone=bool(crash),
        exit_code=-crash if crash > 0 else None,  # MPI_Abort has no signal
        pid=process.pid,
        rank=rank,
        node=process.node,
        world_size=size,
        samples=samples,
    )


def _once(processes: Sequence[TextProcess]) -> list[TextProcess]:
    """Each process of one text once: what is printed of it again is a later sample."""
    found: dict[tuple[str, int, str], TextProcess] = {}
    out: list[TextProcess] = []
    for process in processes:
        of_rank = process.rank >= 0
        key = ("rank", process.rank, "") if of_rank else ("pid", process.pid, process.node)
        before = found.get(key) if process.pid or of_rank else None
        if before is None:
            found[key] = process
            out.append(process)
        else:
            before.earlier = before.earlier or before.threads
            before.threads = process.threads
    return out


def _name(process: TextProcess, place: int, number: int, path: Path) -> str:
    """How a sentence calls a process of which no rank is known, or not of all of them."""
    if process.rank >= 0:
        return f"rank {process.rank}"
    if process.label:
        return process.label
    if process.pid:
        at = f" on {process.node}" if process.node else ""
        return f"process {process.pid}{at}"
    if number == 1:
        what = "group" if _SEVERAL.search(path.stem) else "process"
        return f"the {what} of {path.name}"
    if process.number >= 0:
        return f"process {process.number}"
    return f"stack {place + 1} of {path.name}"
