"""Words of others beside an end: a report beside the kernel's kill, an allocator that may try less, what gRPC adds to
a line, an agent's own wait, and the rank of a line that begins torn.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

REPORT = """\
Traceback (most recent call last):
  File "/srv/sail.py", line 30, in voyage
    ray.get(crew)
ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.
"""
KILLED = "slurmstepd: error: Detected 3 oom-kill event(s) in step 4711.batch cgroup. Some of your processes may have been killed by the cgroup out-of-memory handler.\n"
OWN = """\
Traceback (most recent call last):
  File "/srv/sail.py", line 12, in rig
    raise ValueError("no mast")
ValueError: no mast
"""
ALLOCATOR = "E tensorflow/stream_executor/cuda/cuda_driver.cc:806] failed to allocate 64.00M (67108864 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"
TORN = "rank5]:[E811 01:10:50.482336908 ProcessGroupNCCL.cpp:1515] [PG 3 Rank 2] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered\n"
CLOSED = """\
Additional GRPC error information from remote target unknown_target while calling /tide.Coordination/Poll:
:{"created":"@1706696495.008","description":"Error received from peer ipv4:10.9.0.4:62464","file":"call.cc","grpc_message":"Socket closed","grpc_status":14}
"""
AGENT = """\
Traceback (most recent call last):
  File "/opt/lib/python3.9/site-packages/torch/distributed/elastic/agent/server/api.py", line 906, in _exit_barrier
    store_util.barrier(
  File "/opt/lib/python3.9/site-packages/torch/distributed/elastic/utils/store.py", line 31, in get_all
    data = store.get(f"{prefix}{idx}")
RuntimeError: Socket Timeout
"""
FAILED = (
    "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -6) local_rank: 2 (pid: 26950) of binary: "
    "/opt/bin/python3\n"
)


def test_a_report_beside_the_kernels_kill(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, REPORT + KILLED)
    assert named(found) == [("dead", [])] and "killed for lack of memory" in found.summary


def test_an_own_error_above_the_kernels_kill_stays_first(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, OWN + KILLED)
    assert "ValueError" in found.summary


def test_a_report_alone_says_that_an_actor_died(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, REPORT)
    assert "killed for lack of memory" not in found.summary


def test_an_allocator_that_found_no_memory(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, ALLOCATOR)
    assert named(found) == [("error", [])] and "it asked for 64.00M" in found.summary


def test_the_rank_of_a_line_that_begins_torn(tmp_path: Path) -> None:
    assert named(diagnosed(tmp_path, TORN)) == [("error", [5])]


@pytest.mark.parametrize("before", ["", "done: loss 0.25\n"])
def test_what_grpc_adds_is_no_failure_of_its_own(tmp_path: Path, before: str) -> None:
    found = diagnosed(tmp_path, before + CLOSED)
    assert (found.status, found.causes) == ("unknown", [])


def test_an_agents_wait_at_its_exit_is_no_ranks(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, FAILED + AGENT)
    assert "Socket Timeout" not in found.summary and "SIGABRT" in found.summary


@pytest.mark.parametrize("other", ["from another rank", "of another worker"])
def test_what_failed_for_another_accuses_nobody(tmp_path: Path, other: str) -> None:
    line = f"[2025-09-17 16:23:13 TP1] Haul failed for request 7: Failed to take the abort {other}\n"
    assert [ranks for _, ranks in named(diagnosed(tmp_path, line))] in ([], [[]])
