"""torch's older rendezvous: how many of the processes came to its barrier, and too many of them."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, named


def barrier(world: int, workers: int) -> str:
    where = f"(world_size={world}, worker_count={workers}, timeout=0:10:00)"
    return (
        'Traceback (most recent call last):\n  File "/app/train.py", line 9, in main\n'
        "    dist.init_process_group('nccl')\n"
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, "
        f"for key: store_based_barrier_key:1 {where}\n"
    )


def test_a_process_that_did_not_come(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, barrier(2, 1))
    assert named(verdict) == [("start_stall", [1])], "the line is rank 0's"
    assert verdict.summary.startswith("Rank 1 never came to the rendezvous")
    assert "0 s" not in verdict.summary
    verdict = diagnosed(tmp_path, barrier(8, 4))
    assert named(verdict) == [("start_stall", [])]
    assert verdict.summary.startswith("4 of 8 processes did not come to the rendezvous")
    assert "rank 0 did" in verdict.summary


def test_more_processes_than_the_job_has_are_of_an_earlier_start(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, barrier(2, 4))
    assert named(verdict) == [("start_stall", [])]
    assert "4 processes" in verdict.summary and "earlier" in verdict.summary
    assert "store" in verdict.causes[0].advice


def test_shared_memory_that_is_full_is_no_full_disk(tmp_path: Path) -> None:
    text = "n1:97:176 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device\n"
    assert "/dev/shm" in diagnosed(tmp_path, text).summary
