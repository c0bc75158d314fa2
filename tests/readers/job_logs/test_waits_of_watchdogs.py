"""Waits that a program itself, a stuck watchdog or Ray reports, and how they are shown."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, named

WORK = "WorkNCCL(SeqNum=6, OpType=ALLREDUCE, TensorShape=[1], Timeout(ms)=1800000) ran for 1800863 milliseconds before timing out."
CAUGHT = (
    "[E ProcessGroupNCCL.cpp:474] [Rank {}] Watchdog caught collective operation timeout: " + WORK
)


def test_a_wait_of_the_program_itself(tmp_path: Path) -> None:
    text = f"RuntimeError: [Rank 1] Caught collective operation timeout: {WORK}\n"
    verdict = diagnosed(tmp_path, text)
    assert verdict.causes == [] and "only rank 1 waits" in verdict.summary


def test_a_worker_of_rays_that_its_own_watchdog_ended(tmp_path: Path) -> None:
    died = (
        "2026-11-30 10:19:23,769 WARNING worker.py:2074 -- A worker died or was killed while executing a task "
        "by an unexpected system error. Worker IP address: 10.9.7.1 Worker port: 34011 Worker PID: {} Worker exit "
        "type: SYSTEM_ERROR\n"
    )
    caught = f"(RayWorker pid=651) {CAUGHT.format(0)}\n"
    verdict = diagnosed(tmp_path, died.format(651) + caught)
    assert verdict.causes == [] and "only rank 0 waits" in verdict.summary
    assert named(diagnosed(tmp_path, died.format(77) + caught)) == [("dead", [])]


def test_whose_watchdog_did_not_move(tmp_path: Path) -> None:
    text = "".join(
        f"[rank{r}]:[E423 18:59:04.{r}97939154 ProcessGroupNCCL.cpp:1890] [PG ID 0 PG GUID 0(default_pg) Rank {r}] "
        "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued "
        "collectives.\n"
        for r in (3, 5)
    )
    verdict = diagnosed(tmp_path, text)
    assert verdict.causes == [] and "did not move in ranks 3,5 for 8 min" in verdict.summary


def test_who_says_nothing_of_a_wait_that_all_others_report(tmp_path: Path) -> None:
    text = "".join(CAUGHT.format(rank) + "\n" for rank in (1, 2, 3))
    verdict = diagnosed(tmp_path, text)
    assert verdict.causes == [] and "no such line of rank 0: look there first" in verdict.summary
    verdict = diagnosed(tmp_path, text + CAUGHT.format(0) + "\n")
    assert "look there first" not in verdict.summary


def test_a_cause_is_shown_as_of_those_that_it_names(tmp_path: Path) -> None:
    text = "[1,0]<stderr>:[2026-04-13 13:55:31.858119: W horovod/common/operations.cc:588] Broadcast_0 [missing ranks: 1]\n"
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("not_entered", [1])]
    assert [event.ranks for event in verdict.chain if event.role == "cause"] == [[1]]
    assert [clue.ranks for clue in verdict.causes[0].evidence] == [[1]]
