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
    line = (
        f"[2025-09-17 16:23:13 TP1] Haul failed for request 7: Failed to take the abort {other}\n"
    )
    assert named(diagnosed(tmp_path, line)) == [("in_communication", [])]


ENDED = "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker IP address: 10.7.0.3 Worker port: 10205 Worker PID: 4711 Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file.\n"
ASKED = "(TideActor pid={}) CRITICAL 04-21 10:43:16 [client.py:361] A worker has failed, shutting down. See stack trace above for root cause issue.\n"


def test_who_ended_as_another_had_failed_is_not_first(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, ASKED.format(4711) + ENDED)
    assert (found.status, found.causes) == ("unknown", [])


def test_the_words_of_another_process_do_not_excuse(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, ASKED.format(4712) + ENDED)
    assert "Process 4711 on 10.7.0.3 failed first" in found.summary


def test_a_launchers_list_of_several_names_none(tmp_path: Path) -> None:
    line = "ERROR 2020-11-30 13:01:49,988 utils.py:413] ABORT!!! Out of all 4 trainers, the trainer process with rank=[{}] was aborted. Please check its log.\n"
    several = diagnosed(tmp_path, line.format("0, 2"))
    assert (several.status, several.causes) == ("unknown", [])
    assert named(diagnosed(tmp_path, line.format("2"))) == [("dead", [2])]


XLA_HEAD = "Exception in device=TPU:{}: Aborted: Session 77 is not found.\n"
XLA_BODY = """\
Traceback (most recent call last):
  File "/srv/sail.py", line 12, in rig
    loss.item()
RuntimeError: Aborted: Session 77 is not found.
"""


def test_the_device_above_a_traceback_of_torch_xla(tmp_path: Path) -> None:
    assert named(diagnosed(tmp_path, XLA_HEAD.format(5) + XLA_BODY)) == [("error", [5])]
    both = XLA_HEAD.format(5) + XLA_HEAD.format(6) + XLA_BODY
    assert named(diagnosed(tmp_path, both)) == [("error", [])]


TABLE = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
sail.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-09-07_13:02:58
  host      : tide-1
  rank      : 3 (local_rank: 3)
  exitcode  : 1 (pid: 14692)
  error_file: <N/A>
[2]:
  time      : 2026-09-07_13:03:{}
  host      : tide-1
  rank      : 0 (local_rank: 0)
  exitcode  : -9 (pid: 14689)
  error_file: <N/A>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-09-07_13:02:58
  host      : tide-1
  rank      : 1 (local_rank: 1)
"""


def test_a_kill_long_after_a_cut_row_is_the_agents(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, TABLE.format("29"))
    assert named(found) == [("dead", [1, 3])] and "SIGKILL" not in found.summary


def test_the_folders_of_a_source_file_leave_room_for_what_a_line_says(tmp_path: Path) -> None:
    line = "[/home/crew/work/tide/third_party/harbour/transport/uv/dock.h:596] quay_accept: invalid mooring\n"
    found = diagnosed(tmp_path, line + "*** SIGABRT received at time=1734086759 ***\n")
    assert "[…/dock.h:596] quay_accept: invalid mooring" in found.summary


LOW = "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
WHERE = "Memory on the node (IP: 10.7.0.3, ID: c157) where the task (task ID: 5c9c, name=voyage, pid={}, memory used=10.74GB) was running was 478GB / 503GB (0.95)\n"


def test_the_process_that_rays_monitor_killed(tmp_path: Path) -> None:
    one = diagnosed(tmp_path, LOW + WHERE.format(4711))
    assert "Process 4711 on 10.7.0.3 died first: killed for lack of memory" in one.summary
    two = diagnosed(tmp_path, LOW + WHERE.format(4711) + LOW + WHERE.format(4712))
    assert "Process 4711" not in two.summary


CREATION = """\
FAILED tests/test_tide.py::test_sail - ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, ray::Crew.__init__() (pid=4711, ip=10.7.0.3, actor_id=711b, repr=<tide.Crew object at 0x7e5b>)
  File "/srv/sail.py", line 12, in rig
    raise ValueError("no mast")
ValueError: no mast
"""


def test_an_error_in_a_creation_task_that_a_summary_repeats(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, CREATION)
    assert "Process 4711 on 10.7.0.3 failed first: ValueError in rig" in found.summary


def test_what_nccl_returned_in_quotes(tmp_path: Path) -> None:
    line = "RuntimeError: Failed, NCCL error /tide/quay.cpp:125 '{} (run with NCCL_DEBUG=WARN for details)'\n"
    found = diagnosed(tmp_path, line.format("invalid usage"))
    assert "a call of NCCL failed (invalid usage)" in found.summary
    assert "a call of NCCL failed" not in diagnosed(tmp_path, line.format("remote error")).summary
