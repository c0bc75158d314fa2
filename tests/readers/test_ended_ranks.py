"""Facts of ranks that have ended, from what their boxes keep."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import Frame, JobCapture
from hangdoctor.model.log_facts import GlooTimeout, PythonError
from hangdoctor.model.process_end import ProcessEnd
from hangdoctor.probe import wrap
from hangdoctor.probe.whose_error import installed
from hangdoctor.readers import ended_ranks
from hangdoctor.readers.blackbox import Contents
from hangdoctor.readers.job_logs.python_frames import own_frame
from tests.support.ended_boxes import (
    LIMIT,
    LOST,
    column,
    ended,
    killed,
    left,
    of_column,
    verdict,
)

SAID = "[/x/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation to complete"


def test_an_exception_at_gloos_limit_is_a_wait() -> None:
    """As logs have it: so that the rank which did not come is named, and not those that waited."""
    error = PythonError(error="RuntimeError", message=SAID, rank=1, node="n1", at=5.0)
    [fact] = ended_ranks._told(error)
    assert isinstance(fact, GlooTimeout)
    assert (fact.rank, fact.node, fact.at, fact.limit_ms) == (1, "n1", 5.0, 6000.0)


def test_other_exceptions_are_no_waits() -> None:
    assert ended_ranks._told(PythonError(error="ValueError", message="bad shard")) == []


def test_the_probes_own_frames_are_not_the_users() -> None:
    """It wraps the calls that fail; from a checkout it lies in no folder of packages."""
    frames = [
        Frame("main", "/app/train.py", 9),
        Frame("wrapper", "/src/hangdoctor/probe/wrap.py", 225),
        Frame("init_process_group", "/v/lib/python3.11/site-packages/torch/distributed/c.py", 1),
    ]
    assert own_frame(frames) == frames[0]
    assert installed(wrap.__file__) and not installed("/app/train.py")


def test_a_rank_that_left_and_then_aborted_at_exit_says_both() -> None:
    """gloo's threads may end a process whose program has left: no abort came first."""
    boxes = [left(0, 1011.0, LOST), left(1, 1011.0, LOST), left(2, 1010.0)]
    found = verdict(boxes, [ended(2, -6, 1012.0), ended(0, 1, 1011.5), ended(1, 1, 1011.6)])
    assert [(c.kind, c.ranks) for c in found.causes] == [("dead", [2])]
    assert "left with sys.exit, or at the end of its program" in found.summary
    assert "then aborted at exit" in found.summary


def test_a_rank_that_left_and_was_ended_by_the_launcher() -> None:
    boxes = [left(0, 1011.0, LOST), left(1, 1011.0, LOST), left(2, 1010.0)]
    found = verdict(boxes, [ended(0, 1, 1011.5), ended(1, 1, 1011.6), ended(2, -15, 1012.0)])
    assert [(c.kind, c.ranks) for c in found.causes] == [("dead", [2])]
    assert "left with sys.exit(0)" in found.summary and "SIGTERM" not in found.summary


def test_an_exit_code_of_its_own_is_sys_exit() -> None:
    boxes = [left(0, 1011.0, LOST), left(1, 1011.0, LOST), left(2, 1010.0)]
    found = verdict(boxes, [ended(2, 3, 1010.2), ended(0, 1, 1011.5), ended(1, 1, 1011.6)])
    assert "sys.exit(3)" in found.summary and "the log" not in found.summary


def test_an_abort_in_the_program_is_an_abort() -> None:
    boxes = [left(0, 1011.0, LOST), left(1, 1011.0, LOST), left(2)]
    found = verdict(boxes, [ended(2, -6, 1010.2), ended(0, 1, 1011.5), ended(1, 1, 1011.6)])
    assert "died first: killed by SIGABRT" in found.summary


def hung_column(end_text: str = LIMIT) -> tuple[list[Contents], list[ProcessEnd]]:
    """Rank 2 never comes to #21; ranks 1 and 3 go on until they are ended, one within a step."""
    boxes = [column(0, 21, 1021.0, 1030.0), column(1, 39, 1039.0, 1039.01)]
    boxes += [column(2, 20, 1020.0, 1020.01), column(3, 40, 1040.0, 0.0)]
    boxes[0].ops.operations[-1].failed = True
    boxes[0].box.end_text, boxes[0].box.ended_s = end_text, 1030.01
    ends = [ended(0, 1, 1040.0), *(ended(rank, -15, 1040.1) for rank in (1, 2, 3))]
    return boxes, ends


def test_who_did_not_come_where_other_groups_went_on() -> None:
    """Only one column of the grid hangs, until its limit ends the job."""
    found = of_column(*hung_column())
    assert found.status == "hang"
    assert [(c.kind, c.ranks) for c in found.causes] == [("not_entered", [2])]
    assert "never reached all_reduce #21" in found.summary


def test_an_operation_that_failed_otherwise_is_no_wait() -> None:
    boxes, ends = hung_column("ValueError\nbad shard")
    boxes[0].ops.operations[-1].left_s, boxes[0].box.ended_s = 1021.01, 1021.02
    found = of_column(boxes, ends)
    assert [(c.kind, c.ranks) for c in found.causes] == [("error", [0])]


def test_a_rank_that_the_launcher_had_to_kill_did_not_die_first() -> None:
    """SIGTERM ended the others; the one that stayed, stopped, was what they had waited for."""
    boxes, _ = hung_column("")
    boxes[0] = column(0, 21, 1021.0, 0.0)
    boxes[3] = column(3, 40, 1040.0, 1040.01)
    ends = [*(ended(rank, -15, 1040.1) for rank in (0, 1, 3)), ended(2, -9, 1070.2)]
    found = of_column(boxes, ends)
    assert [(c.kind, c.ranks) for c in found.causes] == [("not_entered", [2])]
    assert found.status == "hang"


def test_a_hang_that_was_ended_by_sigkill_of_all_ranks_is_a_hang() -> None:
    boxes, _ = hung_column("")
    boxes[0], boxes[3] = column(0, 21, 1021.0, 0.0), column(3, 40, 1040.0, 1040.01)
    found = of_column(boxes, killed(1040.1, 0, 1, 2, 3))
    assert found.status == "hang"
    assert [(c.kind, c.ranks) for c in found.causes] == [("not_entered", [2])]


def test_ranks_that_were_all_killed_at_work_are_none_of_them_to_blame() -> None:
    found = verdict([left(0), left(1), left(2)], killed(1010.0, 0, 1, 2))
    assert (found.status, found.causes) == ("unknown", []), found
    assert "ranks 0-2 ended with SIGKILL" in found.summary
    some = verdict([left(0), left(1), left(2)], [*killed(1010.0, 0, 1), ended(2, -15, 1010.4)])
    assert [c.ranks for c in some.causes] == [[0, 1]], "the launcher ended the third"


@pytest.mark.parametrize(
    ("code", "after_s", "named"), [(-9, 0.2, []), (-9, 4.0, [0]), (-15, 0.2, [0])]
)
def test_who_left_as_all_others_were_killed_did_not_end_first(
    code: int, after_s: float, named: list[int]
) -> None:
    """Ray ends its workers by SIGKILL; a launcher that notices an end asks the others first."""
    others = [ended(rank, code, 1010.0 + after_s) for rank in (1, 2)]
    found = verdict([left(0), left(1), left(2)], [ended(0, 1, 1010.0), *others])
    assert [rank for cause in found.causes for rank in cause.ranks] == named, found.summary


def test_who_was_killed_long_before_all_others_died_first() -> None:
    """They waited for it, and whoever saw that ended them."""
    ends = [ended(1, -9, 1010.0), *killed(1022.0, 0, 2)]
    ends[0].at = 1010.0
    found = verdict([left(0), left(1), left(2)], ends)
    assert [(c.kind, c.ranks) for c in found.causes] == [("dead", [1])], found
    assert found.status == "failed"


def test_who_was_killed_first_of_a_job_that_hung_before_that_is_a_victim() -> None:
    """Somebody tried one rank, and then ended all."""
    boxes, _ = hung_column("")
    boxes[0], boxes[3] = column(0, 21, 1021.0, 0.0), column(3, 40, 1040.0, 1040.01)
    found = of_column(boxes, [*killed(1040.1, 0), *killed(1052.0, 1, 2, 3)])
    assert found.status == "hang"
    assert [(c.kind, c.ranks) for c in found.causes] == [("not_entered", [2])]


def test_a_rank_that_was_killed_after_anothers_exception_is_a_victim() -> None:
    boxes = [left(0, 1010.0, "ValueError\nbad shard"), left(1), left(2)]
    ends = [ended(0, 1, 1010.2), ended(1, -15, 1010.4), ended(2, -9, 1040.4)]
    found = verdict(boxes, ends)
    assert [(c.kind, c.ranks) for c in found.causes] == [("error", [0])]


def test_two_ranks_that_crash_at_one_moment_are_both_named() -> None:
    boxes = [left(0, 1011.0, LOST), left(1), left(2)]
    ends = [ended(1, -11, 1010.0), ended(2, -11, 1010.3), ended(0, 1, 1011.2)]
    assert [(c.kind, c.ranks) for c in verdict(boxes, ends).causes] == [("dead", [1, 2])]


def test_what_an_exception_tells_of_others_is_read_as_in_a_log() -> None:
    missed = "[Rank 0]: Rank 2 failed to pass monitoredBarrier in 6000 ms"
    boxes = [left(0, 1010.0, f"RuntimeError\n{missed}"), left(1, 1010.1, LOST), left(2)]
    ends = [ended(0, 1, 1010.3), ended(1, 1, 1010.4), ended(2, -15, 1010.5)]
    found = verdict(boxes, ends)
    assert [(c.kind, c.ranks) for c in found.causes] == [("not_entered", [2])]
    assert "monitored_barrier" in found.summary


STORE = "DistStoreError\nTimed out after 9 seconds waiting for clients. 2/3 clients joined."


def test_a_rank_that_never_started_is_the_one_without_a_box() -> None:
    boxes = [left(0, 1010.0, STORE), left(1, 1010.0, "DistStoreError\nwait timeout after 8000ms")]
    found = verdict(boxes, [ended(0, 1, 1010.3), ended(1, 1, 1010.4)])
    assert [(c.kind, c.ranks) for c in found.causes] == [("start_stall", [2])]
    assert "Rank 2" in found.summary and "no black box" in found.summary


def test_of_several_ranks_without_a_box_the_count_must_agree() -> None:
    """Those of a second node may have their boxes there."""
    boxes = [left(0, 1010.0, STORE.replace("2/3", "5/6"))]
    boxes[0].ops.world_size = 6
    found = verdict(boxes, [ended(0, 1, 1010.3)])
    assert [(c.kind, c.ranks) for c in found.causes] == [("start_stall", [])]


def test_a_stopped_rank_that_is_in_the_operation_too() -> None:
    """All have entered it: who did not end at SIGTERM is what the others wait for."""
    boxes = [column(rank, 21, 1021.0, 0.0, [0, 1, 2, 3]) for rank in range(4)]
    ends = [*(ended(rank, -15, 1040.1) for rank in (0, 1, 3)), ended(2, -9, 1070.2)]
    found = of_column(boxes, ends)
    assert [(c.kind, c.ranks) for c in found.causes] == [("stopped", [2])]
    assert "did not end at SIGTERM" in found.summary


def test_exit_codes_of_a_handler_of_sigterm_are_ends_from_outside() -> None:
    """Who sleeps in Python ends before those that wait in C: it did not fail first."""
    boxes = [column(rank, 21, 1021.0, 0.0, [0, 1, 2, 3]) for rank in range(4)]
    boxes[2] = column(2, 20, 1020.0, 1020.01, [0, 1, 2, 3])
    for contents in boxes:
        contents.box.ended_s = 1040.0 + 0.1 * (contents.ops.rank != 2)
    ends = [ended(2, 143, 1040.05), *(ended(rank, 143, 1040.2) for rank in (0, 1, 3))]
    found = of_column(boxes, ends)
    assert [(c.kind, c.ranks) for c in found.causes] == [("not_entered", [2])]


def test_waits_that_a_handler_of_sigterm_ended_are_waits() -> None:
    """The exception that the handler raises leaves the operation."""
    boxes = [column(rank, 21, 1021.0, 1040.0, [0, 1, 2, 3]) for rank in range(4)]
    boxes[2] = column(2, 20, 1020.0, 1020.01, [0, 1, 2, 3])
    for contents in boxes:
        contents.ops.operations[-1].failed = contents.ops.rank != 2
        contents.box.ended_s = 1040.0
    ends = [ended(2, 143, 1040.05), *(ended(rank, 143, 1040.2) for rank in (0, 1, 3))]
    assert [(c.kind, c.ranks) for c in of_column(boxes, ends).causes] == [("not_entered", [2])]


def test_an_exception_whose_clean_up_outlasts_the_others_limit() -> None:
    """It is noted after their waits have reached it, and was raised before."""
    boxes = [column(rank, 21, 1021.0, 1030.0, [0, 1, 2, 3]) for rank in range(4)]
    boxes[2] = column(2, 20, 1020.0, 1020.01, [0, 1, 2, 3])
    for contents in boxes:
        culprit = contents.ops.rank == 2
        contents.ops.operations[-1].failed = not culprit
        contents.box.end_text = "ValueError\nshard 9 has no tokens" if culprit else LIMIT
        contents.box.ended_s = 1036.0 if culprit else 1030.01
    ends = [*(ended(rank, 1, 1037.0) for rank in (0, 1, 3)), ended(2, 1, 1037.2)]
    found = of_column(boxes, ends)
    assert [(c.kind, c.ranks) for c in found.causes] == [("error", [2])]
    assert "ValueError" in found.summary


def test_equal_exit_codes_at_one_moment_without_a_word_name_none() -> None:
    ends = [ended(rank, 1, 1040.0 + rank / 10, boxed=False) for rank in range(3)]
    assert verdict([], ends).causes == []
    ends[1].at = ends[2].at = 1044.0
    assert [c.ranks for c in verdict([], ends).causes] == [[0]]


def test_an_operation_in_which_a_rank_lost_its_peers_after_their_limit_is_a_wait_too() -> None:
    """One rank called another operation; of the others one notices that they have gone."""
    boxes = [column(rank, 21, 1021.0, 1030.0, [0, 1, 2, 3]) for rank in range(4)]
    for contents in boxes:
        last = contents.ops.operations[-1]
        last.failed, last.op = True, "barrier" if contents.ops.rank == 1 else "all_reduce"
        contents.box.end_text, contents.box.ended_s = LIMIT, 1030.01
    boxes[2].box.end_text, boxes[2].box.ended_s = LOST, 1030.3
    boxes[2].ops.operations[-1].left_s = 1030.2
    ends = [ended(rank, 1, 1031.0 + rank / 10) for rank in (2, 0, 1, 3)]
    assert [(c.kind, c.ranks) for c in of_column(boxes, ends).causes] == [("mismatch", [1])]


def test_a_size_that_no_job_has_is_not_counted_through() -> None:
    ends = [ended(0, 1, 1010.0)]
    ends[0].world_size = 1 << 60
    logs = ended_ranks.facts_of([left(0, 1009.0, LOST)], ends)
    assert logs is not None and logs.unseen == []


def test_a_rank_that_a_signal_ended_long_after_the_others_was_still_in_its_own_code() -> None:
    """Training is over and the groups are gone: one joins a thread that never ends."""
    boxes = [column(rank, 20, 1020.0, 1020.01) for rank in range(4)]
    others = [ended(rank, 0, 1041.0 + rank / 10) for rank in (0, 1, 3)]
    found = of_column(boxes, [*others, ended(2, -15, 1060.0)])
    assert [(c.kind, c.ranks) for c in found.causes] == [("end_stall", [2])]
    assert found.status == "hang" and "ranks 0-1,3 have ended" in found.summary
    soon = of_column(boxes, [*others, ended(2, -15, 1042.0)])
    assert soon.causes == [] and soon.status != "healthy", soon.summary
    most = [ended(rank, -15, 1060.0) for rank in (0, 1, 2)]
    assert of_column(boxes, [ended(3, 0, 1041.0), *most]).causes == []


def test_without_boxes_the_rank_whose_exit_was_not_kept_is_looked_at_first() -> None:
    """A `hangdoctor run` for each rank keeps no exit that went well."""
    ends = [ended(rank, -15, 1020.0, boxed=False) for rank in (0, 1, 2, 3)]
    for end in ends:
        end.world_size = 4

    def said(kept: list[ProcessEnd]) -> str:
        capture = JobCapture("j", [], world_size=4)
        capture.logs, capture.over = ended_ranks.facts_of([], kept), True
        found = diagnose(capture)
        assert (found.status, found.causes) == ("unknown", [])
        return found.summary

    assert "no exit of rank 1 is recorded: see first whether it left" in said(ends[:1] + ends[2:])
    assert "give the job's output too" in said(ends)


def test_what_one_rank_met_in_a_checkpoint_is_that_ranks_failure() -> None:
    """torch's distributed checkpoint raises it on all of them, on the others often before."""
    met = (
        "CheckpointException\n\n\tgathered\t2\tOSError\t[Errno 28] No space left on device\n"
        "create_stream\t/v/torch/distributed/checkpoint/filesystem.py\t520\tgathered\n"
        "save_sharded\t/app/ckpt.py\t31"
    )
    boxes = [left(rank, 1010.0 + (rank == 2) / 100, met) for rank in range(3)]
    [cause] = verdict(boxes, [ended(rank, 1, 1010.5) for rank in range(3)]).causes
    assert (cause.kind, cause.ranks) == ("error", [2])
    assert "no space is left" in cause.summary and "create_stream" in cause.summary
