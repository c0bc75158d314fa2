"""Jobs whose ranks had waited for long when they ended: the wait is the cause, not the end."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.errors import BadInput
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.log_facts import (
    AnyFact,
    BarrierMissed,
    Ended,
    GlooTimeout,
    JobLogs,
    LogFile,
    NoBeat,
)
from hangdoctor.model.number_checks import check_node
from hangdoctor.model.operations import Operation, OpState, RankOps
from hangdoctor.readers import ended_ranks, ended_waits
from hangdoctor.readers.blackbox import Contents
from tests.support.ended_boxes import LIMIT, LOST, column, ended, killed, left, of_column, verdict

ALL = [0, 1, 2, 3]


def hung_at_21(culprit: int = 3) -> list[Contents]:
    """All ranks but one have been waiting in #21 since 1021; none has reached a limit."""
    boxes = [column(rank, 21, 1021.0, 0.0, ALL) for rank in ALL]
    boxes[culprit] = column(culprit, 20, 1020.0, 1020.01, ALL)
    for contents in boxes:
        contents.ops.heartbeat_s = contents.box.heartbeat_s = 1040.0
    return boxes


def lost_peers(contents: Contents, at: float) -> None:
    """It left its operation when its neighbour's connection closed."""
    contents.box.end_text, contents.box.ended_s = LOST, at
    last = contents.ops.operations[-1]
    last.failed, last.state, last.left_s = True, "done", at - 0.01


def named(found: Diagnosis) -> tuple[str, list[tuple[str, list[int]]]]:
    return found.status, [(cause.kind, cause.ranks) for cause in found.causes]


HUNG = ("hang", [("not_entered", [3])])


# ---------------------------------------------------------------------- a guard's own end


def test_a_rank_that_nccls_watchdog_aborts_had_waited_for_its_device() -> None:
    """Its box shows the call as done; torch's recorder shows that the device never finished it."""
    pending = Operation("g", 2, "all_reduce", entered_s=1000.0)
    ops = RankOps(0, 3, "flight_recorder", operations=[pending], runs_ahead=True)
    end = Ended(rank=0, code=-6, at=1035.0)
    ended_waits.mark_device_waits([end], [RankCapture(pid=1, rank=0, recorded=ops)])
    assert end.waited_s == 35.0


@pytest.mark.parametrize(("code", "state"), [(-9, "entered"), (-6, "done")])
def test_a_signal_that_kills_and_a_device_that_is_done_are_no_waits(
    code: int, state: OpState
) -> None:
    last = Operation("g", 2, "all_reduce", state, entered_s=1000.0)
    ops = RankOps(0, 3, "flight_recorder", operations=[last], runs_ahead=True)
    end = Ended(rank=0, code=code, at=1035.0)
    ended_waits.mark_device_waits([end], [RankCapture(pid=1, rank=0, recorded=ops)])
    assert end.waited_s == 0.0


@pytest.mark.parametrize("code", [1, 3, 124, -6])
def test_a_guard_that_ends_its_rank_after_a_long_wait_is_no_cause(code: int) -> None:
    """A watchdog of the program's own: os._exit or abort in a thread."""
    boxes = hung_at_21()
    for rank in (1, 2):
        lost_peers(boxes[rank], 1040.1)
    ends = [ended(0, code, 1040.0), *(ended(rank, 1, 1041.0 + rank) for rank in (1, 2))]
    found = of_column(boxes, [*ends, ended(3, -15, 1044.0)])
    assert named(found) == HUNG
    assert "never reached all_reduce #21" in found.summary


def test_an_exception_that_a_guard_raises_in_the_wait_is_no_cause() -> None:
    """An alarm's handler, say."""
    boxes = hung_at_21()
    lost_peers(boxes[0], 1040.0)
    boxes[0].box.end_text = "StepTooSlow\nno step for 15 s"
    ends = [ended(0, 1, 1040.1), *(ended(rank, -15, 1040.5) for rank in (1, 2, 3))]
    assert named(of_column(boxes, ends)) == HUNG


GUARD = "StepTimeout\nno step for 15 s\nlate\t/app/train.py\t4"


def test_a_guard_in_every_rank_is_no_cause_of_any() -> None:
    """The rank that the others wait for has one, too; they poll the handle of their operation."""
    boxes = hung_at_21()
    for contents in boxes:
        last = contents.ops.operations[-1]
        if contents.ops.rank != 3:
            last.asynchronous, last.state, last.left_s = True, "done", 1043.0
        contents.box.end_text, contents.box.ended_s = GUARD, 1040.0 + contents.ops.rank / 10
    assert named(of_column(boxes, [ended(rank, 1, 1044.0) for rank in ALL])) == HUNG


@pytest.mark.parametrize(("got_on_s", "waited"), [(1021.5, True), (1039.0, False)])
def test_ranks_that_poll_their_handles_until_one_gives_up_wait_for_them(
    got_on_s: float, waited: bool
) -> None:
    """mpi4py's `Testall` in a loop, and an Abort with a code of the program's own after a while."""
    boxes = hung_at_21()
    for contents in boxes:
        last = contents.ops.operations[-1]
        last.op, last.asynchronous, last.state, last.left_s = "recv", True, "started", 0.0
        contents.ops.got_on_s = got_on_s if contents.ops.rank == 2 else 1021.5
    end = Ended(rank=0, at=1040.0, code=17, by="hangdoctor run")
    ended_waits.mark_waits([end], boxes)
    ended_waits.await_polled([end], boxes)
    assert (end.waited_s > 5) == waited
    assert all(c.ops.operations[-1].waited == waited for c in boxes)
    assert not any(c.ops.operations[0].waited for c in boxes)


def test_an_exception_beside_an_operation_in_the_air_is_its_own() -> None:
    """It raised it while it computed; another rank was only slower."""
    boxes = hung_at_21()
    last = boxes[0].ops.operations[-1]
    last.asynchronous, last.state, last.left_s = True, "done", 1043.0
    boxes[0].box.end_text, boxes[0].box.ended_s = "ValueError\nbad shard", 1040.0
    for rank in (1, 2):
        lost_peers(boxes[rank], 1043.1)
    ends = [ended(0, 1, 1043.0), *(ended(rank, 1, 1043.2) for rank in (1, 2))]
    found = of_column(boxes, [*ends, ended(3, -15, 1043.5)])
    assert named(found) == ("failed", [("error", [0])])


def test_an_error_of_the_device_in_the_wait_is_a_cause() -> None:
    boxes = hung_at_21()
    lost_peers(boxes[0], 1040.0)
    boxes[0].box.end_text = "RuntimeError\nCUDA error: an illegal memory access was encountered"
    ends = [ended(0, 1, 1040.1), *(ended(rank, -15, 1040.5) for rank in (1, 2, 3))]
    assert named(of_column(boxes, ends)) == ("failed", [("error", [0])])


def test_a_rank_that_exits_in_an_operation_soon_is_the_cause() -> None:
    """No more than the job's usual wait: nothing hung before."""
    boxes = hung_at_21()
    ends = [ended(0, 3, 1022.0), *(ended(rank, -15, 1022.5) for rank in (1, 2, 3))]
    for rank in (1, 2):
        lost_peers(boxes[rank], 1022.1)
    assert named(of_column(boxes, ends)) == ("failed", [("dead", [0])])


def test_the_rank_that_others_waited_for_may_exit_itself() -> None:
    boxes = hung_at_21()
    for rank in (0, 1, 2):
        lost_peers(boxes[rank], 1040.1)
    ends = [ended(3, 7, 1040.0), *(ended(rank, 1, 1041.0 + rank) for rank in (0, 1, 2))]
    assert named(of_column(boxes, ends)) == ("failed", [("dead", [3])])


def test_a_signal_that_kills_a_waiting_rank_is_its_own_end() -> None:
    """The kernel may have killed it for lack of memory, whatever it waited in."""
    boxes = hung_at_21()
    for rank in (1, 2):
        lost_peers(boxes[rank], 1040.1)
    ends = [ended(0, -9, 1040.0), *(ended(rank, 1, 1041.0 + rank) for rank in (1, 2))]
    assert named(of_column(boxes, [*ends, ended(3, -15, 1044.0)])) == ("failed", [("dead", [0])])


# ---------------------------------------------------------------------- Ctrl-C


INTERRUPT = "KeyboardInterrupt\n\nmain\t/app/train.py\t18"


def interrupted(at: float) -> list[Contents]:
    """SIGINT ends who runs Python at once, and who waits in C when its neighbours have gone."""
    boxes = hung_at_21()
    for contents in boxes:
        late = contents.ops.rank != 3
        if late:
            lost_peers(contents, at + 4.0)
        contents.box.end_text, contents.box.ended_s = INTERRUPT, at + 4.0 * late
    return boxes


def test_an_interrupt_of_all_ranks_does_not_hide_what_they_waited_for() -> None:
    ends = [ended(3, -2, 1040.1), *(ended(rank, -2, 1044.1) for rank in (0, 1, 2))]
    found = of_column(interrupted(1040.0), ends)
    assert named(found) == HUNG
    assert "main (train.py:18)" in found.summary, "where the interrupt found it"


def test_a_first_interrupt_that_its_neighbours_lost_in_the_wait_is_no_cause() -> None:
    """Only one rank got the interrupt, or could say so; it waited itself."""
    boxes = hung_at_21()
    for contents in boxes:
        if contents.ops.rank != 3:
            lost_peers(contents, 1040.2)
    boxes[0].box.end_text, boxes[0].box.ended_s = INTERRUPT, 1040.0
    ends = [ended(0, -2, 1040.1), *(ended(rank, 1, 1041.0) for rank in (1, 2))]
    assert named(of_column(boxes, [*ends, ended(3, -9, 1060.0)])) == HUNG


def test_an_interrupt_is_not_called_sigterm() -> None:
    boxes = [left(rank, 1010.0 + rank / 10, INTERRUPT) for rank in (0, 1, 2)]
    found = verdict(boxes, [ended(rank, -2, 1010.5) for rank in (0, 1, 2)])
    assert found.causes == [] and "SIGINT" in found.summary
    assert "SIGTERM" not in found.summary and "connection" not in found.summary


# ---------------------------------------------------------------------- sends and receives


def pipeline(rank: int, waits_from: int, recvs: int = 25) -> Contents:
    """A rank that has received from its neighbour, and waits for one more; its send still flies."""
    contents = left(rank)
    contents.ops.world_size = 2
    group = column(0, 1, 1001.0, 1001.01, [0, 1]).ops.groups[0]
    done = [
        Operation(group.uid, n, op, "done", entered_s=1000 + n, left_s=1000.1 + n, peer=waits_from)
        for n in range(1, recvs)
        for op in ("recv", "send")
    ]
    for operation in done:
        operation.asynchronous = operation.op == "send"
        operation.site = f"{operation.op} (pp.py:7)"
    state: OpState = "done"
    last = Operation(group.uid, recvs, "recv", state, entered_s=1025.0, left_s=1040.0)
    last.peer, last.failed, last.site = waits_from, True, "recv (pp.py:7)"
    flying = Operation(group.uid, recvs, "send", "done", entered_s=1025.0, left_s=1041.0)
    flying.peer, flying.asynchronous, flying.site = waits_from, True, "send (pp.py:7)"
    contents.ops.groups = [group]
    contents.ops.operations = [*done, flying, last]
    contents.box.end_text, contents.box.ended_s = LIMIT, 1040.01
    return contents


def test_a_send_that_flew_until_the_limit_is_no_usual_pause() -> None:
    """Its handle was given back after the wait: the job was never still so long before."""
    boxes = [pipeline(0, 1), pipeline(1, 0, recvs=24)]
    found = of_column(boxes, [ended(0, 1, 1041.0), ended(1, 1, 1041.1)])
    assert found.status == "hang", found.summary
    assert found.causes, found.summary


def test_waits_in_gloo_that_name_none_say_which_ranks_waited() -> None:
    boxes = [left(rank, 1010.0, LIMIT) for rank in (0, 1, 2)]
    found = verdict(boxes, [ended(rank, 1, 1010.5 + rank) for rank in (0, 1, 2)])
    assert found.causes == [] and "ranks 0-2" in found.summary
    assert "NCCL" not in found.summary and "in the log" not in found.summary


# ---------------------------------------------------------------------- stopped inside


def test_a_rank_without_a_heartbeat_inside_the_operation_is_what_the_others_wait_for() -> None:
    boxes = [column(rank, 21, 1021.0, 1041.0, ALL) for rank in ALL]
    for contents in boxes:
        contents.ops.operations[-1].failed = True
        contents.box.end_text, contents.box.ended_s = LIMIT, 1041.01
        contents.box.heartbeat_s = contents.ops.heartbeat_s = 1040.7
    stopped = column(2, 21, 1021.0, 0.0, ALL)
    stopped.box.heartbeat_s = stopped.ops.heartbeat_s = 1020.8
    boxes[2] = stopped
    found = of_column(boxes, [])
    assert named(found) == ("hang", [("stopped", [2])])
    assert "20 s" in found.summary and "SIGSTOP" in found.summary


def test_the_heartbeat_of_a_rank_outside_is_evidence_too() -> None:
    boxes = hung_at_21()
    boxes[3].box.heartbeat_s = boxes[3].ops.heartbeat_s = 1020.5
    found = of_column(boxes, killed(1040.1, *ALL))
    assert [c.ranks for c in found.causes] == [[3]]
    assert "heartbeat" in " ".join(e.says for c in found.causes for e in c.evidence)
    assert "did not run for 20 s before the first rank ended" in found.summary


def test_who_still_joins_the_job_has_no_heartbeat_by_right() -> None:
    """It begins with the default group; of two that wait for others one came some seconds later."""
    boxes = [left(rank) for rank in range(2)]
    for contents, at in zip(boxes, (1000.5, 1010.0), strict=True):
        contents.box.world_size = contents.ops.world_size = 4
        contents.ops.operations = [Operation("", 1, "init_process_group", entered_s=at)]
        contents.ops.heartbeat_s = contents.box.heartbeat_s = at
    assert ended_waits.silent_ranks(boxes, []) == []
    boxes[0].ops.operations[0].op = "all_reduce"
    assert [fact.rank for fact in ended_waits.silent_ranks(boxes, [])] == [0]


def test_a_probe_that_switched_itself_off_has_no_heartbeat_by_right() -> None:
    boxes = [column(rank, 21, 1021.0, 0.0, ALL) for rank in ALL]
    for contents in boxes:
        contents.box.heartbeat_s = contents.ops.heartbeat_s = 1040.0
    boxes[2].box.heartbeat_s, boxes[2].box.state = 1005.0, "switched_off"
    found = of_column(boxes, killed(1040.1, *ALL))
    assert not any(c.kind == "stopped" for c in found.causes)


def test_heartbeats_that_stopped_with_most_ranks_name_none() -> None:
    """The machine was busy, or its clock was set."""
    boxes = [column(rank, 21, 1021.0, 0.0, ALL) for rank in ALL]
    for contents in boxes[:3]:
        contents.box.heartbeat_s = contents.ops.heartbeat_s = 1020.8
    boxes[3].box.heartbeat_s = boxes[3].ops.heartbeat_s = 1040.0
    found = of_column(boxes, killed(1040.1, *ALL))
    assert not any(c.kind == "stopped" for c in found.causes)


# ---------------------------------------------------------------------- ended from outside


@pytest.mark.parametrize(("code", "by"), [(-15, "SIGTERM"), (-9, "SIGKILL"), (143, "SIGTERM")])
def test_a_healthy_job_that_was_ended_from_outside(code: int, by: str) -> None:
    boxes = [column(rank, 40, 1040.0, 1040.01, ALL) for rank in ALL]
    found = of_column(boxes, [ended(rank, code, 1040.7) for rank in ALL])
    assert named(found) == ("healthy", [])
    assert f"ended from outside ({by}" in found.summary and "nothing hung" in found.summary


def test_a_job_that_had_done_nothing_for_long_may_have_hung() -> None:
    """What the ranks were at is in no record: torch's own reduction of gradients, say."""
    boxes = [column(rank, 20, 1020.0, 1020.01, ALL) for rank in ALL]
    found = of_column(boxes, [ended(rank, -15, 1058.0) for rank in ALL])
    assert named(found) == ("unknown", [])
    assert "ended from outside (SIGTERM" in found.summary and "38 s" in found.summary


def test_without_the_ranks_of_another_node_it_is_not_said_to_be_from_outside() -> None:
    boxes = [column(rank, 40, 1040.0, 1040.01, ALL) for rank in ALL]
    for contents in boxes:
        contents.ops.world_size = 8
    found = of_column(boxes, [ended(rank, -15, 1040.7) for rank in ALL])
    assert found.status == "unknown" and found.causes == []


def test_the_times_of_a_log_are_not_compared_with_those_of_boxes() -> None:
    """Lines without a year or a zone, say: nothing hung by them, and the boxes show a hang."""
    boxes = hung_at_21()
    stamped = Ended(code=-15, by="torchelastic", rank=0, at=3000.0, says="exitcode: -15")
    found = of_column(boxes, [ended(rank, -15, 1040.1) for rank in ALL], [stamped])
    assert named(found) == HUNG
    stamped.at = 5.0
    found = of_column(boxes, [ended(rank, -15, 1040.1) for rank in ALL], [stamped])
    assert named(found) == HUNG


def test_a_table_in_which_every_rank_was_killed_names_none() -> None:
    """torchrun's own: which of them it saw first says nothing."""
    table: list[AnyFact] = [
        Ended(code=-9, by="torchelastic", rank=rank, local=rank, pid=100 + rank, first=rank == 0)
        for rank in ALL
    ]
    capture = JobCapture("logs", origin="files")
    capture.logs = JobLogs(files=[LogFile("job.log")], facts=table, world_size=4)
    assert diagnose(capture).causes == []
    table.pop()
    assert diagnose(capture).causes != [], "the last one may have ended them"


# ---------------------------------------------------------------------- two of their own


def test_a_second_exception_that_no_operation_brought_is_said_too() -> None:
    boxes = [column(rank, 20, 1020.0, 1020.01, ALL) for rank in ALL]
    boxes[0].box.end_text, boxes[0].box.ended_s = "ZeroDivisionError\ndivision by zero", 1020.1
    boxes[2].box.end_text, boxes[2].box.ended_s = "UnicodeDecodeError\nbyte 0xe9", 1025.0
    for rank in (1, 3):
        boxes[rank] = column(rank, 21, 1021.0, 1021.1, ALL)
        lost_peers(boxes[rank], 1021.2)
    ends = [ended(rank, 1, 1021.5 + rank) for rank in (0, 1, 3)]
    found = of_column(boxes, [*ends, ended(2, 1, 1026.0)])
    assert named(found) == ("failed", [("error", [0]), ("error", [2])])
    assert "failed by itself, too: UnicodeDecodeError" in found.causes[1].summary
    roles = {tuple(h.ranks): h.role for h in found.chain}
    assert roles[(2,)] == "cause"


@pytest.mark.parametrize(
    "text",
    [
        "TimeoutError\nno file from rank 0",
        "RuntimeError\nDataLoader worker (pid 7) is killed by signal: Terminated.",
    ],
)
def test_a_second_exception_that_may_follow_from_the_first_is_not(text: str) -> None:
    """It waited for the other by other ways than operations, or the launcher ended it."""
    boxes = [column(rank, 20, 1020.0, 1020.01, ALL) for rank in ALL]
    boxes[0].box.end_text, boxes[0].box.ended_s = "ZeroDivisionError\ndivision by zero", 1020.1
    boxes[2].box.end_text, boxes[2].box.ended_s = text, 1025.0
    found = of_column(boxes, [ended(0, 1, 1020.3), ended(2, 1, 1026.0)])
    assert [c.ranks for c in found.causes] == [[0]]


def test_an_exception_in_an_operation_after_the_first_end_is_not_its_own() -> None:
    boxes = [column(rank, 20, 1020.0, 1020.01, ALL) for rank in ALL]
    boxes[0].box.end_text, boxes[0].box.ended_s = "ZeroDivisionError\ndivision by zero", 1020.1
    boxes[2] = column(2, 21, 1021.0, 1021.1, ALL)
    boxes[2].ops.operations[-1].failed = True
    boxes[2].box.end_text, boxes[2].box.ended_s = "CommError\nstep failed", 1025.0
    found = of_column(boxes, [ended(0, 1, 1020.3), ended(2, 1, 1026.0)])
    assert [c.ranks for c in found.causes] == [[0]]


# ---------------------------------------------------------------------- one call too many


def test_a_rank_that_goes_on_after_all_others_have_ended_made_one_call_too_many() -> None:
    boxes = [column(rank, 20, 1020.0, 1020.01, ALL) for rank in ALL]
    for contents in boxes:
        contents.box.ended_s = 1021.0
    boxes[2] = column(2, 21, 1021.1, 1021.2, ALL)
    lost_peers(boxes[2], 1021.3)
    ends = [ended(2, 1, 1021.4), *(ended(rank, 0, 1021.1 + rank / 10) for rank in (0, 1, 3))]
    found = of_column(boxes, ends)
    assert named(found) == ("failed", [("end_stall", [2])])
    assert "went on to all_reduce #21 when ranks 0-1,3 had ended cleanly" in found.summary


def test_of_two_ranks_neither_is_the_one_that_went_on() -> None:
    boxes = [column(rank, 20 + rank, 1020.0, 1020.1, [0, 1]) for rank in (0, 1)]
    for contents in boxes:
        contents.ops.world_size = 2
    boxes[0].box.ended_s = 1020.2
    lost_peers(boxes[1], 1020.3)
    found = of_column(boxes, [ended(0, 0, 1020.4), ended(1, 1, 1020.6)])
    assert not any(c.kind == "end_stall" for c in found.causes)


# ---------------------------------------------------------------------- from a node to the collector


def test_what_a_node_says_of_waits_and_heartbeats_reaches_the_collector() -> None:
    boxes = [column(rank, 21, 1021.0, 1041.0, ALL) for rank in ALL]
    for contents in boxes[:3]:
        contents.ops.operations[-1].failed = True
        contents.box.end_text, contents.box.ended_s = LIMIT, 1041.01
        contents.box.heartbeat_s = 1040.7
    boxes[3].box.heartbeat_s = 1020.8
    boxes[3].ops.operations = boxes[3].ops.operations[:20]
    ends = [ended(rank, 1, 1041.2) for rank in ALL[:3]]
    told = ended_ranks.facts_of(boxes, ends)
    assert told is not None and {GlooTimeout, NoBeat} <= {type(f) for f in told.facts}
    check_node(NodeCapture("n1", ended=told))
    missed = BarrierMissed(missed_ranks=[1 << 60])
    told.facts.append(missed)
    with pytest.raises(BadInput):
        check_node(NodeCapture("n1", ended=told))


# ---------------------------------------------------------------------- a wait in a handler


def in_a_handler(rank: int, first: str, waited_s: float) -> Contents:
    """It entered a barrier while it handled its first error, and waited there to the end."""
    contents = column(rank, 22, 1040.0 - waited_s, 1040.0, ALL)
    contents.ops.operations[-1].failed = True
    contents.ops.operations[-1].op = "barrier"
    place = "\ntraining_step\t/home/u/train.py\t40\tfirst\nmain\t/home/u/train.py\t56"
    contents.box.end_text = f"{LIMIT}\n\tfirst\t{first}{place}"
    contents.box.ended_s = 1040.01 + rank / 100
    return contents


def test_the_error_that_led_to_a_wait_came_first() -> None:
    """A callback that saves, called by an error, waits for all: the others come to it when their own
    waits have reached the limit."""
    late = "\t".join(LIMIT.split("\n"))
    boxes = [in_a_handler(rank, late, 0.01) for rank in ALL]
    boxes[1] = in_a_handler(1, "ValueError\tnegative load in row 3", 30.0)
    found = of_column(boxes, [ended(rank, 1, 1040.5) for rank in ALL])
    assert named(found) == ("failed", [("error", [1])]), found.summary
    assert "negative load in row 3" in found.summary
    assert "train.py:40" in found.summary


@pytest.mark.parametrize(
    ("where", "led"), [("hold\t/home/u/cache.py\t19", False), ("save\t/home/u/cache.py\t31", True)]
)
def test_an_error_after_which_the_same_function_tried_again_led_to_nothing(
    where: str, led: bool
) -> None:
    """It slept in its handler when it was asked to end; a call from there may be a wait of all."""
    first = "\tfirst\tFileExistsError\tbuild.lock\nhold\t/home/u/cache.py\t16\tfirst"
    boxes = [column(rank, 20 + (rank != 3), 1020.0, 0.0, ALL) for rank in ALL]
    boxes[3].ops.operations = boxes[3].ops.operations[:-1]
    boxes[3].box.end_text = f"KeyboardInterrupt\n\n{where}\n{first}\nmain\t/home/u/train.py\t35"
    boxes[3].box.ended_s = 1040.0
    ends = [ended(3, -2, 1040.1), *(ended(rank, -9, 1070.0) for rank in ALL[:3])]
    found = of_column(boxes, ends)
    kind = ("failed", [("error", [3])]) if led else ("hang", [("not_entered", [3])])
    assert named(found) == kind, found.summary
