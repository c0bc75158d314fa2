"""What HCCL prints of a task that waited to its limit, in three lines: the operation's tag, the group
with the rank in it, and the operation's number and size.

Format: ``task_exception_handler.cc`` of CANN, whose guide to error EI0002 shows the lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from ...model.log_facts import AnyFact, TimedOut
from ...text.late import late
from .npu_tails import OWNER

BEGIN = "Task run failed, "
_TAG = late(r"\btag\[([A-Za-z]{3,40})_[^\]]{1,300}\], AlgType")
_GROUP = late(
    r"groupRank information is group:\[([^\]]{1,200})\].{0,300}?rankSize\[(\d{1,7})\], rankId\[(\d{1,7})\]"
)
_DATA = late(r"opData information is .{0,200}?index\[(\d{1,15})\], count\[(\d{1,18})\]")
_MOMENT = late(r"(\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d)\.\d")  # the line's, the operation's
_PID = late(r"\bHCCL\((\d{1,9}),")
_OF_PID = late(r"\[PID: (\d{1,9})\]")
_NAMES = {
    "AllReduce": "ALLREDUCE",
    "AllGather": "ALLGATHER",
    "Broadcast": "BROADCAST",
    "Reduce": "REDUCE",
    "ReduceScatter": "REDUCE_SCATTER",
    "AlltoAll": "ALLTOALL",
    "AlltoAllV": "ALLTOALL",
    "Send": "SEND",
    "Receive": "RECV",
}


class _Task(Struct):
    """What the lines of one process have told so far."""

    op: str = ""
    group: str = ""
    size: int = -1
    rank: int = -1


class HcclTasks:
    """The tasks of each process of a file. A line whose beginning was cut has no process id; it is of
    the one that speaks next.
    """

    def __init__(self) -> None:
        self._open: dict[str, _Task] = {}

    def feed(self, text: str) -> TimedOut | None:
        """The wait that a line completes."""
        if not any(word in text for word in ("tag[", BEGIN)):
            return None
        number = _PID.search(text)
        pid = number[1] if number is not None else ""
        if pid and "" in self._open:
            self._open.setdefault(pid, self._open.pop(""))
        task = self._open.setdefault(pid, _Task())
        if (tag := _TAG.search(text)) is not None:
            task.op = tag[1]
        if (of := _GROUP.search(text)) is not None:
            task.group, task.size, task.rank = of[1], int(of[2]), int(of[3])
        data = _DATA.search(text)
        if data is None:
            return None
        del self._open[pid]
        waited = _waited(task, index=int(data[1]), count=int(data[2]))
        if waited is not None:
            waited.pid = int(pid) if pid else 0
            waited.ran_ms = _between(text)
        return waited


class RankIds:
    """The rank of each process, which torch_npu prints in a line above those of its error."""

    def __init__(self) -> None:
        self._ranks: dict[str, int] = {}

    def feed(self, text: str) -> None:
        """Take a line: ``(PID:2969, Device:0, RankID:101)``."""
        match = OWNER.search(text) if "RankID:" in text else None
        if match is not None and int(match[3]) >= 0:
            self._ranks[match[1]] = int(match[3])

    def of(self, text: str) -> int:
        """The rank of the process that a line of an error names, ``[PID: 2969]``; -1 unknown."""
        match = _OF_PID.search(text)
        return self._ranks.get(match[1], -1) if match is not None else -1


def _between(text: str) -> float:
    """Milliseconds from the operation's own moment to the line's; 0 without both."""
    found = [datetime.strptime(m[1], "%Y-%m-%d-%H:%M:%S") for m in _MOMENT.finditer(text)]
    return (found[0] - found[1]).total_seconds() * 1000 if len(found) == 2 else 0.0


def _waited(task: _Task, index: int, count: int) -> TimedOut | None:
    if not task.op or not task.group:
        return None
    return TimedOut(
        seq=index,
        op=_NAMES.get(task.op, task.op.upper()),
        group=task.group,
        group_rank=task.rank,
        group_size=task.size,
        numel_in=count,
    )


def number(facts: Iterable[AnyFact]) -> int:
    """Give the waits of one group of all ranks their ranks; the job's size, 0 where it does not show:
    of several groups none may be that of all.
    """
    waits = [f for f in facts if isinstance(f, TimedOut) and f.group_size > 0]
    if len({f.group for f in waits}) != 1:
        return 0
    for fact in waits:
        if fact.rank < 0:
            fact.rank = fact.group_rank
    return waits[0].group_size if all(f.rank == f.group_rank for f in waits) else 0
