"""Lines as people edit them before they paste: several ranks in one bracket, broken, or without a rank; and
what ranks say of themselves in files of their own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.readers.offline import read

CAUGHT = "Watchdog caught collective operation timeout:"
WORK = "WorkNCCL(SeqNum={}, OpType={}, NumelIn=32, NumelOut=32, Timeout(ms)=300000) ran for {}"
BROKEN = (
    "[rank 6]:[E302 09:10:11] " + CAUGHT + "\n"
    "  WorkNCCL(SeqNum=70, OpType=BROADCAST, NumelIn=32, NumelOut=32,\n"
    "           Timeout(ms)=300000) ran for 300040 ms before timing out.\n"
)
SEVERAL = (
    "[rank 1/3/0]:[E302 09:10:31] " + CAUGHT + "\n"
    "  WorkNCCL(SeqNum=71, OpType=ALLREDUCE, NumelIn=900, NumelOut=900,\n"
    "           Timeout(ms)=300000) ran for 300001~300077 ms before timing out.\n"
)
TIMED_OUT = f"[Rank 2] {CAUGHT} " + WORK.format(9, "ALLREDUCE", "300020 milliseconds") + "\n"
SLEPT = "# rank=5 sleeping {}s before all_reduce\n[Rank 5] NCCL error: remote process exited\n"


def judged(folder: Path, texts: dict[str, str]) -> Diagnosis:
    for name, text in texts.items():
        (folder / name).write_text(text)
    return diagnose(read([folder / name for name in texts]))


def test_broken_lines_of_several_ranks_are_the_same_facts(tmp_path: Path) -> None:
    said = judged(tmp_path, {"watchdog.txt": BROKEN + SEVERAL})
    assert said.status == "unknown" and said.causes == []
    assert "rank 6 in broadcast #70, ranks 0-1,3 in all_reduce #71" in said.summary


@pytest.mark.parametrize("sign", ["[rank 1, 3, 0]:", "[Rank 1/3/0]", "[ranks 1,3,0]:"])
def test_other_ways_to_write_several_ranks(tmp_path: Path, sign: str) -> None:
    line = f"{sign} {CAUGHT} {WORK.format(4, 'ALLREDUCE', '300005 ms')} before timing out.\n"
    said = judged(tmp_path, {"w.log": line})
    assert "ranks 0-1,3 timed out in all_reduce #4" in said.summary


def test_a_bracket_of_numbers_is_no_list_of_ranks(tmp_path: Path) -> None:
    """They are done before, and counted by torch's own check."""
    capture = judged(tmp_path, {"w.log": f"[1/3] epoch\n{TIMED_OUT}"})
    assert "only rank 2 waits" in capture.summary


def test_the_operation_alone_is_a_wait_of_somebody(tmp_path: Path) -> None:
    said = judged(
        tmp_path, {"w.txt": "PG GUID 4 (DP)  x3\n" + WORK.format(5, "ALLREDUCE", "300051 ms")}
    )
    assert said.status == "unknown" and "neither" not in said.summary
    assert (
        "a wait in all_reduce #5 reached its limit, its line does not name the rank" in said.summary
    )


def test_the_rest_of_a_broken_line_is_no_further_wait(tmp_path: Path) -> None:
    rest = WORK.format(9, "ALLREDUCE", "300020 milliseconds")
    whole = judged(tmp_path, {"a.log": f"[rank2]: [Rank 2] {CAUGHT}\n{rest}\n"})
    assert "only rank 2 waits in the log (in all_reduce #9)" in whole.summary
    assert sum("timed out" in one.says for one in whole.chain) == 1


@pytest.mark.parametrize("name", ["rank5.txt", "log_rank5.txt"])
def test_who_slept_longer_than_the_others_waited_came_late(tmp_path: Path, name: str) -> None:
    said = judged(tmp_path, {"rank2.txt": TIMED_OUT, name: SLEPT.format(400)})
    [cause] = said.causes
    assert (said.status, cause.kind, cause.ranks) == ("hang", "not_entered", [5])
    assert "slept or was late for 7 min before" in cause.summary and name in cause.summary


@pytest.mark.parametrize(
    "text",
    [
        SLEPT.format(40),  # less than the others' limit
        SLEPT.format(400).replace("before all_reduce", "before the next try"),
        TIMED_OUT.replace("Rank 2", "Rank 5") + SLEPT.format(400),  # it waited there itself
    ],
)
def test_a_sleep_that_explains_nothing_accuses_nobody(tmp_path: Path, text: str) -> None:
    said = judged(tmp_path, {"rank2.txt": TIMED_OUT, "rank5.txt": text})
    assert said.status == "unknown" and said.causes == []


COORDINATOR = (
    "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n"
    "/job:jax_worker/replica:0/task:3\n/job:jax_worker/replica:0/task:6\nThe tasks have crashed.\n"
)
LIVES = (
    "completed step: 40, seconds: 12.1, loss: 2.5\nF0303 10:00:00 client.h:77] Terminating process "
    "because the JAX distributed service detected fatal errors. absl::Status: UNAVAILABLE\n"
)


def test_who_goes_on_after_it_was_said_to_be_lost_is_alive(tmp_path: Path) -> None:
    texts = {"coordinator.txt": COORDINATOR, "rank3.txt": LIVES}
    [cause] = judged(tmp_path, texts).causes
    assert (cause.ranks, cause.confidence) == ([6], 0.45)
    assert "so was rank 3, whose own log goes on after that (rank3.txt:2)" in cause.summary


def test_where_all_of_them_go_on_it_is_mostly_a_false_alarm(tmp_path: Path) -> None:
    texts = {"coordinator.txt": COORDINATOR, "rank3.txt": LIVES, "rank6.txt": LIVES}
    [cause] = judged(tmp_path, texts).causes
    assert (cause.ranks, cause.confidence) == ([3, 6], 0.45)
    assert "mostly a false alarm" in cause.summary and "died" not in cause.summary


def test_steps_without_a_time_are_no_sign_of_life(tmp_path: Path) -> None:
    texts = {"coordinator.txt": COORDINATOR, "rank3.txt": LIVES.partition("\n")[0] + "\n"}
    [cause] = judged(tmp_path, texts).causes
    assert cause.ranks == [3, 6] and cause.confidence > 0.9


TESTED = "server up\n.\n----\nRan 1 test in {}s\n\n{}\nFinished\n"
LOST = (
    "2026-02-03 11:00:20 error 411 pid[90] [Store helper.cpp:22] store add for key(count) failed: -602\n"
    "[2026-02-03 11:00:22 DP1 TP9] Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/srv/sched.py", line 210, in recv_requests\n    dist.broadcast(size, src=0)\n'
    "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:544] Connection closed by peer [10.7.0.2]:1502\n"
)


def test_after_a_run_of_tests_that_went_well_who_goes_last_loses_the_others(tmp_path: Path) -> None:
    said = judged(tmp_path, {"a-0.log": TESTED.format("900.001", "OK"), "a-1.log": LOST})
    assert said.status == "unknown" and said.causes == []
    assert "a run of tests had ended well before ('OK', a-0.log:6)" in said.summary


@pytest.mark.parametrize(
    "end", ["FAILED (errors=1)", "OK, so far", "FAILED (failures=1, skipped=1)"]
)
def test_tests_that_failed_are_no_ordinary_end(tmp_path: Path, end: str) -> None:
    said = judged(tmp_path, {"a-0.log": TESTED.format("900.001", end), "a-1.log": LOST})
    assert "had ended well" not in said.summary


def test_an_end_after_the_failure_explains_nothing(tmp_path: Path) -> None:
    late = "2026-02-03 12:30:00 still here\n" + TESTED.format("900.001", "OK")
    said = judged(tmp_path, {"a-0.log": late, "a-1.log": LOST})
    assert "had ended well" not in said.summary


def test_an_ordinary_end_alone_is_one(tmp_path: Path) -> None:
    said = judged(tmp_path, {"a-0.log": TESTED.format("12.5", "OK (skipped=2)")})
    assert said.status == "healthy"
