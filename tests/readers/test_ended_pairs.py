"""Jobs that are over, in which one rank waited for another's side of a transfer, or left its wait."""

from __future__ import annotations

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.model.operations import Group, Operation, OpState, RankOps, group_uid
from hangdoctor.readers import ended_ranks
from hangdoctor.readers.blackbox import Contents
from tests.support.ended_boxes import LIMIT, column, ended, killed, left, of_column

ALL = [0, 1, 2, 3]
WORLD = group_uid(ALL)


def balanced(rank: int) -> Contents:
    """Twenty rounds of all_reduce. Then rank 2 sends its first message, to rank 1, which goes on to
    the next all_reduce with the others. All end at gloo's limit.
    """
    if rank != 2:
        contents = column(rank, 20, 1020.0, 1039.9, ALL)
        contents.ops.operations[-1].failed = True
    else:
        contents = column(rank, 19, 1019.0, 1019.01, ALL)
        send = Operation(WORLD, 1, "send", "done", entered_s=1020.0, left_s=1040.0, peer=1)
        send.asynchronous, send.failed, send.site = True, True, "migrate (moe.py:69)"
        contents.ops.operations = [*contents.ops.operations, send]
    contents.box.end_text, contents.box.ended_s = LIMIT, 1039.95
    return contents


def test_a_first_message_that_nobody_receives_names_both_of_its_sides() -> None:
    """No past shows whether the sender or the receiver should have done something else."""
    found = of_column([balanced(rank) for rank in ALL], [ended(r, 1, 1041.0) for r in ALL])
    assert [(cause.kind, cause.ranks) for cause in found.causes] == [("p2p_unmatched", [1, 2])]
    said = "rank 2 in send #1 to rank 1 (moe.py:69), rank 1 in all_reduce #20 without the recv"
    assert said in found.summary


def pair(rank: int) -> Contents:
    """Each sends to the other at last, and none receives."""
    contents = left(rank)
    sends = [
        Operation(WORLD, n, "send", "done", entered_s=1000.0 + n, left_s=1000.1 + n, peer=1 - rank)
        for n in range(1, 6)
    ]
    sends[-1].left_s, sends[-1].failed, sends[-1].site = 1040.0, True, f"step (pp.py:{30 + rank})"
    contents.ops = RankOps(rank, 2, groups=[Group(WORLD, ALL)], operations=sends)
    contents.box.world_size = 2
    contents.box.end_text, contents.box.ended_s = LIMIT, 1040.0
    return contents


def test_two_ranks_that_both_send_are_named_with_both_lines() -> None:
    found = of_column([pair(0), pair(1)], [])
    assert [(cause.kind, cause.ranks) for cause in found.causes] == [("p2p_unmatched", [0, 1])]
    assert (
        "(pp.py:30), rank 1 in send #5 to rank 0 (pp.py:31), and neither receives" in found.summary
    )
    assert found.causes[0].advice.startswith("Compare pp.py:30 with pp.py:31")


def reducing(rank: int, last: int, state: OpState) -> RankOps:
    """What torch's recorder held: one gradient bucket a second."""
    every = [
        Operation(WORLD, n, "all_reduce", "done", entered_s=1000.0 + n) for n in range(last + 1)
    ]
    every[-1].state = state
    ops = RankOps(rank, 4, groups=[Group(WORLD, ALL)], operations=every)
    ops.source = "flight_recorder"
    return ops


def test_a_wait_in_cpp_that_ranks_left_at_its_limit_is_a_long_one() -> None:
    """Rank 2 raised before its backward; all are in a handler when the job is killed, at one line,
    so that only the recorders show who did not come.
    """
    boxes = [left(rank) for rank in ALL]
    ranks = []
    for contents in boxes:
        rank = contents.ops.rank
        start = Operation(WORLD, 1, "init_process_group", "done", entered_s=999.0, left_s=999.1)
        contents.ops = RankOps(rank, 4, groups=[Group(WORLD, ALL)], operations=[start])
        found = RankCapture(pid=contents.box.pid, rank=rank, world_size=4, ops=contents.ops)
        found.recorded = reducing(rank, 35, "done") if rank == 2 else reducing(rank, 36, "entered")
        ranks.append(found)
    capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=4, over=True)
    capture.logs = ended_ranks.facts_of(boxes, killed(1140.0, *ALL))
    found = diagnose(capture)
    assert [(cause.kind, cause.ranks) for cause in found.causes] == [("not_entered", [2])]
    assert "all_reduce #36" in found.summary
