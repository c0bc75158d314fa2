"""What ranks were in when their job was ended from outside, or by a guard of the program's own."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.diagnosis.findings import Finding, Op
from hangdoctor.diagnosis.findings.log_stories import NamedByTorch
from hangdoctor.diagnosis.wording import stories
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.log_facts import Ended, JobLogs, LogFile, PythonError
from hangdoctor.model.operations import Group, Operation, OpState, group_uid
from hangdoctor.model.process_end import ProcessEnd
from hangdoctor.readers import ended_ranks
from hangdoctor.readers.blackbox import Contents
from hangdoctor.readers.box_place import LastPlace
from hangdoctor.readers.ended_operations import as_at_the_limit
from hangdoctor.readers.offline import join_logs
from tests.support.ended_boxes import LIMIT, LOST, column, ended, killed, left, of_column

ALL = [0, 1, 2, 3]
INTERRUPT = "KeyboardInterrupt\n\nbackward\t/torch/autograd/graph.py\t989"


def named(found: Diagnosis) -> list[tuple[str, list[int]]]:
    return [(cause.kind, cause.ranks) for cause in found.causes]


def places(found: Diagnosis) -> list[str]:
    return [line.place for line in found.ranks]


# ---------------------------------------------------------------------- killed one after another


def in_backward(rank: int) -> Contents:
    """Its gradients are reduced without a record; it has made eleven steps."""
    contents = left(rank)
    group = Group(group_uid(ALL), ALL)
    start = Operation(group.uid, 1, "init_process_group", "done", entered_s=1000.0, left_s=1000.1)
    contents.ops.groups, contents.ops.operations = [group], [start]
    contents.ops.world_size, contents.ops.steps, contents.ops.iteration = 4, 11, 11
    contents.ops.heartbeat_s = contents.box.heartbeat_s = 1040.0
    return contents


def gathering_alone() -> list[Contents]:
    """Rank 1 is in a collective of its own, until the first of its neighbours is killed."""
    boxes = [in_backward(rank) for rank in ALL]
    ops = boxes[1].ops
    gather = Operation(group_uid(ALL), 1, "all_gather_object", "done", entered_s=1005.0)
    gather.left_s, gather.failed, gather.site = 1040.02, True, "main (accum.py:17)"
    ops.operations, ops.steps = [*ops.operations, gather], 12
    return boxes


def test_an_operation_that_a_neighbours_kill_ended_is_one_that_the_rank_was_in() -> None:
    boxes = gathering_alone()
    for rank in (2, 3):
        boxes[rank].box.end_text, boxes[rank].box.ended_s = INTERRUPT, 1040.03
    found = of_column(boxes, killed(1040.0, *ALL))
    assert named(found) == [("order", [1])]
    assert places(found)[1].startswith("in all_gather_object #1")


def test_an_operation_that_failed_before_any_rank_was_ended_stays_ended() -> None:
    boxes = gathering_alone()
    boxes[1].ops.operations[-1].left_s = 1020.0
    found = of_column(boxes, killed(1040.0, *ALL))
    assert places(found)[1].startswith("after all_gather_object #1")


def test_where_an_interrupt_meets_a_job_that_goes_on_is_chance() -> None:
    """One rank is in its own code, the others in backward: so it is at most moments of any job."""
    boxes = [column(rank, 20, 1020.0, 1020.01, ALL) for rank in ALL]
    for contents in boxes:
        own = contents.ops.rank == 0
        contents.box.end_text = "KeyboardInterrupt\n\nmain\t/app/gan.py\t24" if own else INTERRUPT
        contents.box.ended_s = 1020.3
    ends = [ended(rank, -2, 1020.4) for rank in ALL]
    found = of_column(boxes, ends)
    assert (found.status, found.causes) == ("healthy", []), found.summary
    assert "nothing hung" in found.summary


def test_progress_in_cpp_is_progress() -> None:
    """No operation for 20 s, but torch has been given collectives until the end."""
    boxes = [in_backward(rank) for rank in ALL]
    for contents in boxes:
        contents.ops.got_on_s = 1039.2
    found = of_column(boxes, killed(1040.0, *ALL))
    assert (found.status, found.causes) == ("healthy", []), found.summary
    boxes[2].ops.got_on_s = 1020.0
    assert of_column(boxes, killed(1040.0, *ALL)).status == "unknown"


def test_a_wait_that_is_as_long_as_usual_gives_a_lead() -> None:
    """Three were in a call for 12 s when all were ended; a call of this job had lasted 5 s before."""

    def boxes(usual_s: float) -> list[Contents]:
        found = [column(rank, 20, 1020.0, 0.0, ALL) for rank in ALL]
        for contents in found:
            contents.ops.operations[3].left_s = contents.ops.operations[3].entered_s + usual_s
            contents.ops.heartbeat_s = contents.box.heartbeat_s = 1031.9
        found[2].ops.operations = found[2].ops.operations[:-1]
        return found

    found = of_column(boxes(5.0), killed(1032.0, *ALL))
    assert (found.status, found.causes) == ("unknown", [])
    assert (
        "when all ranks but rank 2 had waited in all_reduce #20 for 12 s: begin at rank 2"
        in found.summary
    )
    assert named(of_column(boxes(0.5), killed(1032.0, *ALL))) == [("not_entered", [2])]


# ---------------------------------------------------------------------- rings without any end


RING = list(range(6))
# Of each rank: complete rounds, and the transfers that it holds: name, peer, number. It waits for
# the first of them. Rank 4 sends to rank 0 instead of rank 5.
HELD: dict[int, tuple[int, list[tuple[str, int, int]]]] = {
    0: (13, [("recv", 5, 14)]),
    1: (14, [("recv", 0, 15)]),
    2: (14, [("send", 3, 15), ("recv", 1, 15)]),
    3: (13, [("send", 4, 14), ("recv", 2, 14)]),
    4: (12, [("send", 0, 1), ("recv", 3, 13)]),
    5: (12, [("recv", 4, 13)]),
}


def transfer(name: str, peer: int, number: int, state: OpState = "done") -> Operation:
    at = 1000.0 + number
    left_s = at + 0.1 if state == "done" else 0.0
    found = Operation(group_uid(RING), number, name, state, entered_s=at, left_s=left_s)
    found.peer, found.asynchronous, found.site = peer, True, "main (ring.py:13)"
    return found


def in_ring(rank: int) -> Contents:
    """Its rounds of a ring of six by batch_isend_irecv, and what it holds at the end."""
    rounds, held = HELD[rank]
    onward, back = (rank + 1) % 6, (rank - 1) % 6
    ops = []
    for n in range(1, rounds + 1):
        ops += [transfer("send", onward, n), transfer("recv", back, n)]
    if len(held) == 1:
        ops.append(transfer("send", onward, rounds + 1))
    ops += [transfer(name, peer, n, "started") for name, peer, n in held]
    ops[-len(held)].waited = True
    contents = left(rank)
    contents.ops.groups, contents.ops.operations = [Group(group_uid(RING), RING)], ops
    contents.ops.world_size, contents.ops.heartbeat_s = 6, 1040.0
    return contents


def test_handles_that_ranks_waited_for_when_all_were_killed_are_waits() -> None:
    """No parent noted how any of them ended."""
    boxes = [in_ring(rank) for rank in RING]
    ranks = [RankCapture(pid=c.box.pid, rank=c.ops.rank, world_size=6, ops=c.ops) for c in boxes]
    capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)], world_size=6)
    capture.over = True
    found = diagnose(capture)
    assert named(found) == [("mismatch", [4])], found.summary
    assert places(found)[4] == "in send #1"


# ---------------------------------------------------------------------- keys of the store


STORE_LIMIT = (
    "DistStoreError\nwait timeout after 9000ms, keys: /cache/0, /cache/1, /cache/2\nmain\t/p.py\t8"
)


def waiting_for_keys() -> list[Contents]:
    """All but rank 2 wait in the store, to its limit."""
    boxes = [column(rank, 2, 1002.0, 1002.01, ALL) for rank in ALL]
    for contents in boxes:
        if contents.ops.rank == 2:
            continue
        wait = Operation("", 1, "store_wait", "done", entered_s=1003.0, left_s=1012.0)
        wait.failed, wait.detail = True, "cache/0,cache/1,cache/2"
        contents.ops.operations = [*contents.ops.operations, wait]
        contents.box.end_text, contents.box.ended_s = STORE_LIMIT, 1012.01
    return boxes


def of_keys() -> Diagnosis:
    ends = [ended(rank, 1, 1013.0 + rank / 10) for rank in (0, 1, 3)]
    return of_column(waiting_for_keys(), [*ends, ended(2, -15, 1013.2)])


def test_the_one_rank_that_did_not_wait_for_the_keys_is_named() -> None:
    found = of_keys()
    assert named(found) == [("not_entered", [2])], found.summary
    assert "connection" not in found.summary
    assert places(found)[0] == "in store_wait #1"


def test_one_error_of_several_ranks_is_one_line_of_the_chain() -> None:
    says = [event.says for event in of_keys().chain if "wait timeout" in event.says]
    assert len(says) == 1


def test_two_ranks_that_did_not_wait_for_the_keys_are_not_told_apart() -> None:
    boxes = waiting_for_keys()
    ops = boxes[3].ops
    ops.operations, boxes[3].box.end_text, boxes[3].box.ended_s = ops.operations[:-1], "", 0.0
    ends = [ended(0, 1, 1013.0), ended(1, 1, 1013.1), ended(2, -15, 1013.2), ended(3, -15, 1013.3)]
    assert ("not_entered", [2]) not in named(of_column(boxes, ends))


# ---------------------------------------------------------------------- a guard of the culprit


def test_a_guard_that_ends_the_rank_which_made_another_call_is_not_what_failed() -> None:
    boxes = [column(rank, 21, 1021.0, 0.0, ALL) for rank in ALL]
    for contents in boxes:
        for operation in contents.ops.operations:
            operation.site = "step (train.py:34)"
    other = boxes[0].ops.operations[-1]
    other.op, other.site = "all_gather_into_tensor", "evaluate (train.py:33)"
    for rank in (1, 2, 3):
        last = boxes[rank].ops.operations[-1]
        last.state, last.failed, last.left_s = "done", True, 1040.1
        boxes[rank].box.end_text, boxes[rank].box.ended_s = LOST, 1040.11
    ends = [ended(0, 17, 1040.0), *(ended(rank, -15, 1041.0) for rank in (1, 2, 3))]
    found = of_column(boxes, ends)
    assert found.status == "hang"
    assert [c.ranks for c in found.causes] == [[0]]
    assert found.causes[0].kind in ("order", "mismatch")


# ---------------------------------------------------------------------- words


def test_one_source_for_both_accounts_of_a_death() -> None:
    def account(name: str) -> JobLogs:
        end = Ended(rank=2, at=20.0, code=17, by="hangdoctor run", first=True, says="ended")
        lost = PythonError(rank=1, at=20.1, error="RuntimeError", role="consequence", says="closed")
        return JobLogs(files=[LogFile(name, 9)], facts=[end, lost], world_size=4)

    log = account("train.log")
    join_logs(log, account("n1: exit codes"))
    capture = JobCapture("files", [NodeCapture("n1")], world_size=4)
    capture.logs = log
    [cause] = diagnose(capture).causes
    agree = [e.says for e in cause.evidence if "agree" in e.says]
    assert len(agree) == 1 and agree[0].startswith("The log and the black boxes agree")
    assert "torchrun --tee 3," not in cause.advice


def test_the_barrier_that_names_a_rank_is_said_once() -> None:
    story = NamedByTorch("barrier", Op("monitored_barrier"))
    finding = Finding("not_entered", [4], story, 0.9)
    assert stories.tell(story, finding).endswith("never joined monitored_barrier")


# ---------------------------------------------------------------------- a batch of transfers


def test_a_transfer_whose_handle_reached_the_limit_is_one_that_its_rank_was_in() -> None:
    """Rank 0's send failed at the limit; what it receives had come, and nobody had asked for it."""
    boxes = [in_backward(rank) for rank in ALL]
    for contents in boxes:
        contents.box.end_text, contents.box.ended_s = LIMIT, 1040.0
    ops = boxes[0].ops
    send = Operation(group_uid(ALL), 7, "send", "done", entered_s=1010.0, peer=1)
    send.left_s, send.failed = 1040.0, True
    came = Operation(group_uid(ALL), 7, "recv", "done", entered_s=1010.0, left_s=1040.0, peer=3)
    ops.operations = [*ops.operations, send, came]
    logs = ended_ranks.facts_of(boxes, [])
    assert logs is not None
    as_at_the_limit(boxes, logs)
    assert [(o.op, o.state, o.failed) for o in ops.operations[-2:]] == [
        ("send", "entered", False),
        ("recv", "done", False),
    ]


def test_a_handle_that_was_given_back_when_the_wait_for_an_earlier_one_failed_is_no_wait() -> None:
    """Rank 0 waited for its send; the handle of its recv ended with the batch. Rank 1 failed first."""
    boxes = [in_backward(rank) for rank in ALL]
    for contents in boxes:
        contents.box.end_text, contents.box.ended_s = LIMIT, 1040.0
    boxes[1].box.ended_s = 1039.9
    ops = boxes[0].ops
    send = Operation(group_uid(ALL), 7, "send", "done", entered_s=1010.0, peer=1, asynchronous=True)
    send.left_s, send.failed = 1040.0, True
    recv = Operation(group_uid(ALL), 7, "recv", "done", entered_s=1010.0, peer=3, asynchronous=True)
    recv.left_s = 1040.0
    ops.operations = [*ops.operations, send, recv]
    logs = ended_ranks.facts_of(boxes, [])
    assert logs is not None
    as_at_the_limit(boxes, logs)
    assert [(o.op, o.state, o.waited) for o in ops.operations[-2:]] == [
        ("send", "entered", True),
        ("recv", "done", False),
    ]


def test_what_a_handler_called_after_the_limit_is_no_wait() -> None:
    """Ranks 0 and 2 saved their state in a barrier once their backward had failed; rank 1 before."""
    boxes = [in_backward(rank) for rank in ALL]
    for contents in boxes:
        contents.box.end_text, contents.box.ended_s = LIMIT, 1040.2
        barrier = Operation(group_uid(ALL), 2, "barrier", "done", entered_s=1040.0)
        barrier.left_s, barrier.failed = 1040.1, True
        if contents.ops.rank == 1:
            barrier.entered_s = 970.0
        contents.ops.operations = [*contents.ops.operations, barrier]
    waited = Operation(group_uid(ALL), 1, "all_reduce", "done", entered_s=970.0)
    waited.left_s, waited.failed = 1039.9, True
    boxes[3].ops.operations.insert(1, waited)  # what its handler was for, where that is recorded
    logs = ended_ranks.facts_of(boxes, [])
    assert logs is not None
    as_at_the_limit(boxes, logs)
    last = [contents.ops.operations[-1] for contents in boxes]
    assert [(o.op, o.state) for o in last] == [
        ("init_process_group", "done"),
        ("barrier", "entered"),
        ("init_process_group", "done"),
        ("all_reduce", "entered"),
    ]


# ---------------------------------------------------------------------- an error that the end itself brings

READ = Frame("ask", "/app/env.py", 22)
CUT = "JSONDecodeError\nExpecting value: line 1 column 1 (char 0)"
AT_READ = f"{CUT}\nraw_decode\t/usr/lib/python3.11/json/decoder.py\t355\nask\t/app/env.py\t22"


def reading(text: str = AT_READ, since_s: float = 1021.0, state: str = "S") -> list[Contents]:
    """Rank 3 has read from a child since then and raises at 1040.3, when all were killed; the others have
    waited for it in #21.
    """
    boxes = [column(rank, 21, 1021.0, 0.0, ALL) for rank in ALL]
    boxes[3] = column(3, 20, 1020.0, 1020.01, ALL)
    for contents in boxes:
        contents.ops.heartbeat_s = contents.box.heartbeat_s = 1040.0
    boxes[3].box.end_text, boxes[3].box.ended_s = text, 1040.3
    boxes[3].place = LastPlace([READ], since_s, 1040.0, 0.0, idle_since_s=since_s, state=state)
    return boxes


def test_an_exception_where_a_rank_had_long_stood_as_all_were_killed_follows_from_that() -> None:
    """Its child was killed a moment before it."""
    found = of_column(reading(), [])
    assert named(found) == [("not_entered", [3])], found.summary
    assert found.status == "hang" and "never reached all_reduce #21" in found.summary
    [cause] = found.causes
    assert any("JSONDecodeError" in clue.says for clue in cause.evidence)


def test_so_it_does_where_run_has_noted_the_kills() -> None:
    found = of_column(reading(), killed(1040.2, 0, 1, 2))
    assert named(found) == [("not_entered", [3])], found.summary


@pytest.mark.parametrize(
    ("boxes", "ends"),
    [
        pytest.param(reading(f"{CUT}\nmain\t/app/env.py\t40"), [], id="at another line"),
        pytest.param(reading(since_s=1039.0), [], id="it had just come there"),
        pytest.param(reading(AT_READ.replace("JSONDecode", "Timeout")), [], id="a limit"),
        pytest.param(reading(), [ended(r, -15, 1040.9) for r in (0, 1, 2)], id="a launcher's end"),
    ],
)
def test_an_exception_of_its_own_is_the_cause(
    boxes: list[Contents], ends: list[ProcessEnd]
) -> None:
    assert named(of_column(boxes, ends)) == [("error", [3])]


def test_it_is_where_the_others_lived_on() -> None:
    boxes = reading()
    boxes[1].box.heartbeat_s = 1043.0
    assert named(of_column(boxes, [])) == [("error", [3])]


WORKER = "RuntimeError\nDataLoader worker (pid(s) 121) exited unexpectedly\nask\t/app/env.py\t22"


def test_a_loaders_worker_that_was_killed_with_all_others_is_no_first_failure() -> None:
    assert named(of_column(reading(WORKER), [])) == [("not_entered", [3])]
    boxes = reading(WORKER)
    boxes[1].box.heartbeat_s = 1043.0
    assert named(of_column(boxes, [])) == [("error", [3])], "the others lived on"
