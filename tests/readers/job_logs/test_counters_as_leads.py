"""Counters that name no rank and still say something: who was left behind, whether one of the waiters is
missing, and waits beside others in gloo.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named
from tests.support.written_logs import caught, counters, told

GLOO = (
    "[rank{0}]: Traceback (most recent call last):\n"
    '[rank{0}]:   File "/w/serve.py", line 40, in sync\n'
    "[rank{0}]:     dist.barrier(group=control)\n"
    "[rank{0}]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] "
    "Timed out waiting 1800000ms for recv operation to complete\n"
)
STUCK = (
    "[rank{0}]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank {0}] Heartbeat monitor timed out! Process will be "
    "terminated after dumping debug info. workMetaList_.size()=2\n"
    "[rank{0}]:[F ProcessGroupNCCL.cpp:1169] [PG 0 Rank {0}] [PG 0 Rank {0}] ProcessGroupNCCL's watchdog "
    "got stuck for 600 seconds without making progress in monitoring enqueued collectives.\n"
)


def by_itself(rank: int, enqueued: int, completed: int) -> str:
    """A rank whose own watchdog gave the signal."""
    return told(rank, -1, enqueued, completed).replace(" rank -1", "this local rank")


def test_one_rank_has_called_what_most_never_called(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, by_itself(4, 90, 71) + told(0, 4, 71, 71) + told(2, 4, 71, 71))
    assert verdict.causes == [] and verdict.status == "unknown"
    assert "rank 4 timed out in operation #72" in verdict.summary
    assert (
        "up to #90" in verdict.summary and "ranks 0,2 had called none after #71" in verdict.summary
    )


def test_those_behind_are_no_lead_where_they_have_not_completed(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, by_itself(4, 90, 71) + told(0, 4, 71, 66) + told(2, 4, 71, 66))
    assert "had called none" not in verdict.summary


def test_a_waiter_is_not_alone_where_others_wait_in_gloo(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, caught(5) + GLOO.format(1) + GLOO.format(2))
    assert verdict.causes == [] and "only rank" not in verdict.summary
    assert "rank 5 in all_reduce #81, ranks 1-2 in gloo" in verdict.summary


def test_the_number_of_a_wait_follows_from_what_was_completed(tmp_path: Path) -> None:
    assert "in operation #72" in diagnosed(tmp_path, by_itself(4, 90, 71)).summary


def test_none_of_the_waiters_is_missing(tmp_path: Path) -> None:
    text = "".join(caught(rank) + counters(rank, 83, 80) for rank in (0, 1))
    summary = diagnosed(tmp_path, text).summary
    assert "none of these is missing" in summary and "the network, a link or a GPU" in summary
    assert "first operation" not in summary
    first = text.replace("SeqNum=81", "SeqNum=1")
    assert "the first operation of its group" in diagnosed(tmp_path, first).summary


def test_a_watchdog_that_stuck_ended_its_own_process(tmp_path: Path) -> None:
    died = "x7.example: rank 3 died from signal 6 and dumped core\n"
    verdict = diagnosed(tmp_path, STUCK.format(3) + died)
    assert verdict.causes == [] and "did not move in rank 3 for 10 min" in verdict.summary
    assert named(diagnosed(tmp_path, died)) == [("dead", [3])]


def test_a_report_that_is_broken_after_its_colon(tmp_path: Path) -> None:
    text = (
        "[rank3] Watchdog caught collective operation timeout:\n"
        "WorkNCCL(SeqNum=644, OpType=ALLGATHER, NumelIn=1, NumelOut=32, Timeout(ms)=600000)\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert (
        verdict.causes == []
        and "only rank 3 waits in the log (in all_gather #644)" in verdict.summary
    )


def test_numbers_of_jobs_are_no_tasks(tmp_path: Path) -> None:
    text = "".join(f"{job}: came to step 3 and stood\n" for job in (2640017, 2640212, 2640418))
    verdict = diagnosed(tmp_path, text)
    assert verdict.causes == [] and all(not event.ranks for event in verdict.chain)


TOOK = "Trainer[rank={}]: save/upload_done after {} s\n"


def test_work_that_took_longer_than_the_others_wait(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, TOOK.format(2, "2211.4") + caught(0) + caught(1))
    assert named(verdict) == [("slow", [2])] and verdict.status == "slow"
    assert "came too late to all_reduce #81" in verdict.summary and "37 min" in verdict.summary


def test_work_that_was_over_before_the_others_waited_is_no_reason(tmp_path: Path) -> None:
    short = TOOK.format(2, "311.4") + caught(0) + caught(1)
    assert diagnosed(tmp_path, short).status == "unknown"
    own = TOOK.format(1, "2211.4") + caught(0) + caught(1)
    assert diagnosed(tmp_path, own).status == "unknown"
    early = f"[rank2]: 2026-07-09 15:00:01,104 INFO {TOOK.format(2, '2211.4')}"
    late = caught(0).replace("E709", "E710") + caught(1).replace("E709", "E710")
    assert diagnosed(tmp_path, early + late).causes == []


def test_a_line_names_whom_a_waiter_waits_for(tmp_path: Path) -> None:
    for line in (
        "[rank3]: still waiting for rank 0 to come to the barrier\n",
        "[rank3]: rank 0 did not respond within 600 s\n",
        "[rank3]: no answer from rank 0\n",
    ):
        verdict = diagnosed(tmp_path, line + caught(3))
        assert verdict.causes == [] and "names rank 0 as the one" in verdict.summary
        assert "only rank 3" not in verdict.summary


def test_a_wait_that_was_over_or_names_several_is_no_lead(tmp_path: Path) -> None:
    over = "[rank3]: waiting for rank 0 to load\nstep 4 loss 1.0\nstep 5 loss 1.0\n"
    several = "[rank3]: waiting for ranks 0, 1\n"
    itself = "[rank0]: waiting for rank 3\n"
    for text in (over, several, itself):
        assert "only rank 3 waits" in diagnosed(tmp_path, text + caught(3)).summary


CAUGHT = "Watchdog caught collective operation timeout:"


@pytest.mark.parametrize(
    "text",
    [
        f"[rank1]: {CAUGHT} WorkNCCL(SeqNum=306,\nOpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=600000) ran\nfor 600032 milliseconds before timing out.\n",
        f"[rank1]: {CAUGHT}\n    WorkNCCL(SeqNum=306, OpType=ALLREDUCE, NumelIn=1,\n    NumelOut=1, "
        "Timeout(ms)=600000)\n    ran for 600032 milliseconds before timing out.\n",
        f"12.5s [rank1]: {CAUGHT} WorkNCCL(SeqNum=306, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=600000) ran for 600032 milliseconds before timing out.\n",
        f"2026-04-30 22:06:35 | ERROR | w-1 | [Rank 1] {CAUGHT} WorkNCCL(SeqNum=306, OpType=ALLREDUCE, "
        "Timeout(ms)=600000) ran for 600032 milliseconds before timing out.\n",
        f"Rank 1 {CAUGHT} WorkNCCL SeqNum=306 OpType=ALLREDUCE NumelIn=1 NumelOut=1 Timeout(ms)=600000 "
        "ran for 600032 milliseconds before timing out.\n",
    ],
)
def test_reports_as_people_paste_them(tmp_path: Path, text: str) -> None:
    verdict = diagnosed(tmp_path, text)
    assert verdict.causes == []
    assert "only rank 1 waits in the log (in all_reduce #306)" in verdict.summary


def test_a_broken_report_is_not_completed_by_another_rank(tmp_path: Path) -> None:
    begun = f"[rank1]: {CAUGHT} WorkNCCL(SeqNum=306,\n"
    verdict = diagnosed(tmp_path, begun + caught(2, seq=81))
    assert verdict.causes == [] and "rank 1 in all_reduce" not in verdict.summary
