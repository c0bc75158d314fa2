"""Jobs that were ended from outside, or whose log just stops: nothing is said to have gone well that
a line contradicts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

CANCELLED = "slurmstepd: error: *** STEP 31.0 ON n1 CANCELLED AT 2026-03-02T11:20:31{} ***\n"
STOPPED = "srun: Terminating job step 31.0\n"
LOST = "[rank1]: RuntimeError: [/x/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.9.0.4]:12717\n"
LIMIT = (
    "[rank2]:[E302 11:10:12.12 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600301 milliseconds before timing out.\n"
)
DOWN = "[rank6]:[E302 04:14:29.22 ProcessGroupNCCL.cpp:698] [Rank 6] To avoid data inconsistency, we are taking the entire process down.\n"
STEPS = "step 10 loss 2.0\nstep 11 loss 2.0\n"
DENIED = ("nothing failed before", "without a failure", "neither a failure")


@pytest.mark.parametrize("why", ["", " DUE TO TIME LIMIT", " DUE TO PREEMPTION"])
@pytest.mark.parametrize(
    ("failed", "says"),
    [
        (LOST, "rank 1 lost a connection to 10.9.0.4"),
        (LIMIT, "only rank 2 waits"),
        (DOWN, "rank 6 printed that the watchdog of its process group ended it"),
        ("srun: error: n[3-4]: tasks 12-19: Aborted\n", "ranks 12-19 ended with SIGABRT"),
    ],
)
def test_what_failed_before_the_end_from_outside_is_told(
    tmp_path: Path, failed: str, says: str, why: str
) -> None:
    found = diagnosed(tmp_path, STEPS + failed + CANCELLED.format(why))
    assert (found.status, found.causes) == ("unknown", [])
    assert says in found.summary and not any(words in found.summary for words in DENIED)


@pytest.mark.parametrize(
    "harmless",
    [
        "",
        "srun: error: n3: task 12: Terminated\n",  # by the cancel, and printed first
        f"grpc: ipv4:10.9.0.4:1234: Failed to connect to remote host: x\n{STEPS.replace('1', '2')}",
    ],
)
def test_a_cancel_that_nothing_failed_before(tmp_path: Path, harmless: str) -> None:
    found = diagnosed(tmp_path, STEPS + harmless + CANCELLED.format(""))
    assert "the job was cancelled" in found.summary and "nothing failed before" in found.summary


def test_what_came_after_the_cancel_is_its_doing(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, STEPS + CANCELLED.format("") + LOST + DOWN)
    assert "the job was cancelled" in found.summary


def test_an_error_of_no_known_kind_is_not_denied(tmp_path: Path) -> None:
    error = "ERROR: the mesh has no cells\n"
    found = diagnosed(tmp_path, STEPS + error + CANCELLED.format(""))
    assert "the job was cancelled" in found.summary
    assert f"one line that says error is '{error.strip()}' (job.log:3)" in found.summary
    found = diagnosed(tmp_path, STEPS + error)
    assert found.status == "failed" and error.strip() in found.summary, "nothing goes on after it"
    found = diagnosed(tmp_path, error + STEPS)
    assert "without a failure or a clean end" in found.summary, "the job went on after it"


def test_a_launchers_signal_after_a_failure(tmp_path: Path) -> None:
    asked = "W302 11:20:31.6 torch/distributed/elastic/agent/server/api.py:723] Received 15 death signal, shutting down workers\n"
    assert "nothing failed before" in diagnosed(tmp_path, STEPS + asked).summary
    found = diagnosed(tmp_path, STEPS + LOST + asked)
    assert "rank 1 lost a connection" in found.summary


def test_a_log_that_stops_with_a_watchdogs_word(tmp_path: Path) -> None:
    bar = "Steps:   0%|   | 1/500 [12:44<14:40, 104.11s/it, loss=0.36]"
    found = diagnosed(tmp_path, f"{bar}\n{DOWN}")
    assert found.causes == [] and "rank 6 printed that the watchdog" in found.summary
    assert not any(words in found.summary for words in DENIED)
    found = diagnosed(tmp_path, f"training finished\n{DOWN}")
    assert found.status == "unknown", "it did not end cleanly"


def test_a_percentage_is_no_step(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "Steps:  40%|   | 17/42 [12:44<14:40, 1.1s/it]\n")
    assert "iteration 17" in found.summary


NODE = "srun: error: n3: tasks 12-14: Aborted\n"
LAST = "srun: error: n3: task 15: Aborted\n"
OTHERS = "srun: error: n4: tasks 16-19: Terminated\n"


def test_the_tasks_of_one_node_that_aborted_first(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, NODE + STOPPED + LAST + CANCELLED.format("") + OTHERS)
    assert named(found) == [("dead", [12, 13, 14, 15])] and found.causes[0].nodes == ["n3"]
    assert "which of them was first does not show" in found.summary


@pytest.mark.parametrize(
    "text",
    [
        NODE + STOPPED + OTHERS.replace("Terminated", "Aborted"),  # two nodes
        NODE + OTHERS.replace("Terminated", "Killed"),  # before srun ended the step
        LOST + NODE + STOPPED + OTHERS,  # a rank had lost another one
        LIMIT + NODE + STOPPED + OTHERS,  # a wait had reached its limit
    ],
)
def test_aborts_that_no_node_is_named_for(tmp_path: Path, text: str) -> None:
    assert diagnosed(tmp_path, text).causes == []


def test_the_tasks_that_srun_saw_abort_before_it_ended_the_rest(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, NODE + STOPPED + OTHERS.replace("n4", "n3"))
    assert named(found) == [("dead", [12, 13, 14])] and found.causes[0].confidence < 0.5
    assert "as srun saw it" in found.summary and "does not show" in found.summary


TABLE = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-07-26_10:59:45
  host      : n2
  rank      : 10 (local_rank: 2)
  exitcode  : -6 (pid: 214)
"""
STOP = "W0726 10:59:{}.786825 140538 torch/distributed/elastic/multiprocessing/api.py:858] Sending process 147 closing signal SIGTERM\n"


def test_an_abort_alone_while_other_launchers_had_ranks_to_stop(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, TABLE + STOP.format(50))
    assert named(found) == [("dead", [10])] and found.causes[0].nodes == ["n2"]
    assert found.causes[0].confidence < 0.5 and "as far as the log shows" in found.summary
    assert "watchdog" in found.causes[0].advice, "which ends a rank that only waited"


@pytest.mark.parametrize(
    "text",
    [
        LIMIT + TABLE + STOP.format(50),
        TABLE + TABLE.replace("10 (local_rank: 2)", "3 (local_rank: 3)") + STOP.format(50),
    ],
)
def test_an_abort_that_may_follow_from_anything(tmp_path: Path, text: str) -> None:
    assert diagnosed(tmp_path, text).causes == []


@pytest.mark.parametrize("text", [TABLE, TABLE + STOP.format(45)])
def test_an_abort_by_the_launchers_word_alone(tmp_path: Path, text: str) -> None:
    found = diagnosed(tmp_path, text)
    assert named(found) == [("dead", [10])] and found.causes[0].confidence < 0.5
    assert "as torchrun saw it" in found.summary and "watchdog" in found.causes[0].advice


@pytest.mark.parametrize("code", ["-15", "-1", "-2", "143"])
def test_a_signal_that_others_send_is_no_failure_of_its_rank(tmp_path: Path, code: str) -> None:
    found = diagnosed(tmp_path, TABLE.replace("-6", code).replace("SIGABRT", "SIGTERM"))
    assert found.causes == []


def test_a_table_without_its_head(tmp_path: Path) -> None:
    def entry(rank: int) -> str:
        return TABLE.partition("[0]:\n")[2].replace(
            "10 (local_rank: 2)", f"{rank} (local_rank: {rank})"
        )

    cut = entry(2).replace("-6", "1") + "[2]:\n" + entry(3).replace("-6", "1").replace("214", "215")
    verdict = diagnosed(tmp_path, cut)
    assert named(verdict) == [("dead", [2, 3])] and "exit code 1" in verdict.summary
    assert "which of them was first does not show" in verdict.summary
    died = entry(0).replace("-6", "-7")
    assert named(diagnosed(tmp_path, died)) == [("dead", [0])]
    own = "  rank      : 2 of 8\n  exitcode  : -9 (pid: 214)\n"
    assert diagnosed(tmp_path, STEPS + own).causes == [], "it is not that table"


@pytest.mark.parametrize(
    "line",
    [
        "requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))\n",
        "n1:12:14 [0] NCCL INFO misc/socket.cc:64 -> 3\n",
    ],
)
def test_what_the_job_went_on_after_is_no_end(tmp_path: Path, line: str) -> None:
    found = diagnosed(tmp_path, STEPS + line + "step 12 loss 2\nstep 13 loss 2\nstep 14 loss 2\n")
    assert "the log ends after iteration 14" in found.summary
    found = diagnosed(tmp_path, STEPS + line)
    assert "the log ends" not in found.summary


MPI_ERROR = (
    "[n18:5140] *** An error occurred in MPI_Reduce\n[n18:5140] *** reported by process [25381,200]\n"
    "[n18:5140] *** on communicator MPI_COMM_WORLD\n[n18:5140] *** MPI_ERR_OTHER: known error not in list\n"
)


def test_tasks_that_are_killed_after_srun_ended_the_step_are_no_cause(tmp_path: Path) -> None:
    stopped = "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
    text = MPI_ERROR + stopped + CANCELLED.format("") + "srun: error: n3: tasks 120-159: Killed\n"
    found = diagnosed(tmp_path, text)
    assert named(found) == [] and "rank 200 on n18 printed" in found.summary
    again = MPI_ERROR.replace("5140", "5148").replace(",200]", ",208]")
    found = diagnosed(tmp_path, text.replace("srun: error", again + "srun: error"))
    assert 120 not in {rank for cause in found.causes for rank in cause.ranks}, found.summary
    assert "200" in found.summary, found.summary


def test_a_time_out_that_is_broken_over_lines_is_a_wait(tmp_path: Path) -> None:
    broken = LIMIT.replace("timeout: WorkNCCL", "timeout:\n          WorkNCCL")
    broken = broken.replace("NumelOut=4, Timeout", "NumelOut=4,\n          Timeout")
    ended = "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal SIGABRT\n"
    found = diagnosed(tmp_path, broken + DOWN.replace("rank6", "rank2") + ended)
    assert (found.status, found.causes) == ("unknown", [])
    assert "only rank 2 waits in the log (in all_reduce #81)" in found.summary
