"""Black boxes and exit codes of jobs that are over, as tests write them down."""

from __future__ import annotations

from collections.abc import Sequence

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.log_facts import AnyFact, JobLogs, LogFile
from hangdoctor.model.operations import Group, Operation, OpState, RankOps, group_uid
from hangdoctor.model.process_end import ProcessEnd
from hangdoctor.readers import ended_ranks
from hangdoctor.readers.blackbox import Contents
from hangdoctor.readers.box_header import BlackBox
from hangdoctor.readers.ended_operations import as_at_the_limit
from hangdoctor.readers.offline import join_logs

LOST = "RuntimeError\n[/x/pair.cc:538] Connection closed by peer [127.0.0.1]:4711"


LIMIT = "RuntimeError\n[/x/unbound_buffer.cc:78] Timed out waiting 9000ms for recv operation to complete"


PAIRS = {0: [0, 2], 1: [1, 3], 2: [0, 2], 3: [1, 3]}


def dead_box(pid: int, rank: int, world_size: int) -> BlackBox:
    """What a process that lived for nine seconds has left."""
    return BlackBox(
        path=f"/boxes/n1-{pid}.box",
        pid=pid,
        rank=rank,
        world_size=world_size,
        host="n1",
        job="j",
        status="dead",
        state="running",
        created_s=1000.0,
        heartbeat_s=1009.0,
    )


def left(rank: int, at: float = 0.0, end_text: str = "") -> Contents:
    """A rank's box: `at` when it wrote how it ended, "" without an exception."""
    box = dead_box(100 + rank, rank, world_size=3)
    box.ended_s, box.end_text = at, end_text
    return Contents(box, RankOps(rank=rank, world_size=3, source="blackbox"), [])


def ended(rank: int, code: int, at: float, boxed: bool = True) -> ProcessEnd:
    return ProcessEnd(
        pid=100 + rank, node="n1", code=code, at=at, rank=rank, world_size=3, boxed=boxed
    )


def killed(at: float, *ranks: int) -> list[ProcessEnd]:
    return [ended(rank, -9, at + rank / 100) for rank in ranks]


def verdict(boxes: list[Contents], ends: list[ProcessEnd]) -> Diagnosis:
    capture = JobCapture("j", [NodeCapture("n1")], world_size=3)
    capture.logs, capture.over = ended_ranks.facts_of(boxes, ends), True
    return diagnose(capture)


def column(
    rank: int, seq: int, entered_s: float, left_s: float, members: list[int] | None = None
) -> Contents:
    """A rank that makes one all_reduce a second in its group of two; 0 where the last has not
    ended.
    """
    members = members or PAIRS[rank]
    group = Group(group_uid(members), members)
    before = [
        Operation(group.uid, n, "all_reduce", "done", entered_s=1000.0 + n, left_s=1000.01 + n)
        for n in range(seq)
    ]
    state: OpState = "done" if left_s else "entered"
    last = Operation(group.uid, seq, "all_reduce", state, entered_s=entered_s, left_s=left_s)
    contents = left(rank)
    contents.ops = RankOps(rank, 4, groups=[group], operations=[*before, last], heartbeat_s=1039.0)
    return contents


def of_column(
    boxes: list[Contents], ends: list[ProcessEnd], logged: Sequence[AnyFact] = ()
) -> Diagnosis:
    """The verdict on ranks with operations; `logged`: what the job's own output says beside."""
    logs = ended_ranks.facts_of(boxes, ends)
    assert logs is not None
    as_at_the_limit(boxes, logs)
    if logged:
        own = JobLogs(files=[LogFile("job.log")], facts=list(logged))
        join_logs(own, logs)
        logs = own
    ranks = [RankCapture(pid=c.box.pid, rank=c.ops.rank, world_size=4, ops=c.ops) for c in boxes]
    capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=4)
    capture.logs, capture.over = logs, True
    return diagnose(capture)
