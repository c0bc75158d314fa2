"""Reports on another process's failure, errors met while others are ended, and whose an error is by the lines
beside it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.readers import job_logs
from tests.support.read_logs import diagnosed, named

PARENT = """\
Traceback (most recent call last):
  File "/opt/engine/proxy.py", line 88, in start
    raise {0}
{0}
"""
NPU = """\
RuntimeError: tideOp:Stream.cpp:390 NPU function error: aclrtSynchronizeDevice, error code is {code}
[ERROR] 2024-05-06-07:08:09 (PID:2969, Device:3, RankID:{rank}) ERR00100 PTA call acl api failed
[Error]: {why}.
        Rectify the fault based on the error information in the ascend log.
"""
CLEANUP = """\
Traceback (most recent call last):
  File "/opt/tide/launch.py", line 20, in launch
    watch(procs)
  File "/opt/tide/utils.py", line 61, in {}
    proc.join(timeout=1)
AttributeError: 'Popen' object has no attribute 'join'
"""
TASK = """\
ray::sail() (pid=812, ip=10.7.0.3)
  File "/srv/sail.py", line 12, in rig
    raise ValueError("no mast")
ValueError: no mast
"""
XLA = "2024-05-06 07:08:09.1: E external/xla/service/rendezvous.cc:38] This thread has been waiting for `acquire clique for rank 2; run=7` for 10 seconds and may be stuck. Expected 8 threads.\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB. GPU {} has a total capacity of 95.00 GiB\n"


@pytest.mark.parametrize(
    "says",
    [
        "RuntimeError: Executor worker returned error",
        "RuntimeError: One of the tide workers failed to start. Check its log.",
        "BrokenProcessPool: A process in the process pool was terminated abruptly while the future was running or pending.",
        "Exception: Server process exited with code -9. Check server logs for errors.",
        "RuntimeError: The scheduler died unexpectedly.",
    ],
)
def test_a_parents_word_is_no_reason(tmp_path: Path, says: str) -> None:
    found = diagnosed(tmp_path, PARENT.format(says))
    assert (found.status, found.causes) == ("unknown", [])
    assert "another process of the job had failed" in found.summary


@pytest.mark.parametrize(
    "says",
    [
        "RuntimeError: Worker failed to start: port 80 is taken",
        "ValueError: the trainer failed with 3 rows of the tide table",
        "RuntimeError: Preprocess failed",
    ],
)
def test_a_reason_behind_such_words_is_one(tmp_path: Path, says: str) -> None:
    assert named(diagnosed(tmp_path, PARENT.format(says))) == [("error", [])]


def test_a_parents_word_beside_the_reason(tmp_path: Path) -> None:
    found = diagnosed(
        tmp_path, PARENT.format("RuntimeError: Executor worker returned error") + TASK
    )
    assert named(found) == [("error", [])] and "no mast" in found.summary


@pytest.mark.parametrize("name", ["terminate_local_procs", "_kill_process_tree", "stop_workers"])
def test_an_error_met_while_others_are_ended(tmp_path: Path, name: str) -> None:
    found = diagnosed(tmp_path, CLEANUP.format(name))
    assert (found.status, found.causes) == ("unknown", []) and "launcher" in found.summary


def test_an_error_of_a_function_that_ends_nobody(tmp_path: Path) -> None:
    assert named(diagnosed(tmp_path, CLEANUP.format("stop_training"))) == [("error", [])]


def test_whose_kernel_failed_and_why(tmp_path: Path) -> None:
    text = NPU.format(code=507018, rank=-1, why="The aicpu execution is abnormal")
    found = diagnosed(tmp_path, text)
    assert named(found) == [("error", [])] and "Process 2969 (device 3)" in found.summary
    assert "a kernel failed on its NPU: The aicpu execution is abnormal" in found.summary
    assert named(diagnosed(tmp_path, text.replace("RankID:-1", "RankID:3"))) == [("error", [3])]


def test_what_another_rank_prints_below_is_not_about_the_error(tmp_path: Path) -> None:
    text = NPU.format(code=507018, rank=12, why="The aicpu execution is abnormal")
    error, owner, *_ = text.splitlines()
    found = diagnosed(tmp_path, f"[default3]:{error}\n[default4]:{owner}\n")
    assert found.causes[0].ranks == [] and "2969" not in found.summary


def test_who_waits_on_an_npu_is_named_and_not_blamed(tmp_path: Path) -> None:
    text = NPU.format(code=507046, rank=2, why="All tasks of the stream are not completed")
    found = diagnosed(tmp_path, text)
    assert (found.status, found.causes) == ("unknown", []) and "rank 2 waited" in found.summary


def test_the_heading_of_a_task_of_ray(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, TASK)
    assert "Process 812 on 10.7.0.3 failed first: ValueError in rig" in found.summary


def test_threads_of_xla_that_wait(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, XLA)
    assert (found.status, found.causes) == ("unknown", [])
    assert "waits for others at 'acquire clique'" in found.summary


def test_a_full_gpu_without_a_rank(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, OOM.format(5))
    assert named(found) == [("error", [])] and "A rank with GPU 5" in found.summary
    assert "with GPU" not in diagnosed(tmp_path, OOM.format(0)).summary


def test_a_cut_line_of_gloo(tmp_path: Path) -> None:
    cut = "Exception: Warming up failed: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection cl"
    found = diagnosed(tmp_path, PARENT.format(cut))
    assert (found.status, found.causes) == ("unknown", []) and "lost a connection" in found.summary


def test_the_same_of_two_nameless_files_is_of_both(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(XLA)
    logs, silent, _ = job_logs.read([tmp_path / "a.log", tmp_path / "b.log"])
    assert len(logs.facts) == 2 and not silent


SHIPPED = """\
(SGLangEngine pid=6680) [2025-09-22 14:35:35 DP1 TP3] Scheduler hit an exception: Traceback (most recent call last):
(RolloutManager pid=12) waiting for engines
(SGLangEngine pid=6680)   File "/srv/engine/loop.py", line 2612, in run
(SGLangEngine pid=6680)     loop()
(SGLangEngine pid=6680) AssertionError: the tide is out
(SGLangEngine pid=6680) closing
"""
BOOTSTRAP = """\
Process Process-1:
Traceback (most recent call last):
  File "/usr/lib/python3.8/multiprocessing/process.py", line 315, in _bootstrap
    self.run()
  File "/usr/lib/python3.8/multiprocessing/process.py", line 108, in run
    self._target(*self._args, **self._kwargs)
"""
LOST = "The node with node id: 75b2e and ip: 10.4.4.{} has been marked dead because the detector has missed too many heartbeats from it.\n"
UNREACHED = """\
2018-06-08 05:55:09.1: E tensorflow/core/distributed_runtime/master.cc:269] Master init: Unavailable: OS Error
Traceback (most recent call last):
  File "fit.py", line 145, in <module>
    launch(config)
"""
SPAWNED = """\
Failed to connect to client mesh master: n7:56419
Traceback (most recent call last):
  File "fit.py", line 69, in main
    xmp.spawn(fn, nprocs=8)
  File "/opt/lib/python3.6/site-packages/torch/multiprocessing/spawn.py", line 112, in join
    (error_index, exitcode)
Exception: process 1 terminated with exit code 17
"""


def test_whose_a_message_is_below_the_prefix_of_its_process(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, SHIPPED)
    assert "Worker DP1 TP3 (process 6680) failed first: AssertionError in run" in found.summary


def test_a_traceback_of_pythons_own_start_says_nothing(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, BOOTSTRAP)
    assert (found.status, found.causes) == ("unknown", [])
    own = BOOTSTRAP + '  File "/srv/sail.py", line 3, in rig\n    hoist()\n'
    assert named(diagnosed(tmp_path, own)) == [("error", [])]


def test_several_nodes_that_ray_lost(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, LOST.format(7) + LOST.format(8))
    assert "failed: Ray lost them" in found.summary and len(found.causes[0].nodes) == 2
    assert "10.4.4.7, 10.4.4.8" in found.causes[0].advice
    many = "".join(LOST.format(n) for n in range(1, 8))
    assert "7 nodes failed: Ray lost them" in diagnosed(tmp_path, many).summary


def test_the_daemon_of_a_node_that_was_given_up(tmp_path: Path) -> None:
    line = "[2022-02-16 12:46:52,789 C 149 149] node_manager.cc:170: This node has been marked as dead.\n"
    found = diagnosed(tmp_path, line)
    assert named(found) == [("unreachable", [])] and "marked its node as dead" in found.summary


def test_who_could_not_reach_another_is_not_blamed(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, UNREACHED)
    assert (found.status, found.causes) == ("unknown", []) and "not reachable" in found.summary


def test_the_rank_that_a_line_says_it_was_on(tmp_path: Path) -> None:
    line = "[E] Failed to start executor on rank 3: CUDA runtime error in sync(): an illegal memory access was encountered\n"
    assert named(diagnosed(tmp_path, line)) == [("error", [3])]
    both = line.replace("on rank 3", "on rank 3 and on rank 4")
    assert named(diagnosed(tmp_path, both)) == [("error", [])]


def test_what_stands_above_the_only_exit(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, SPAWNED)
    assert "exit code 17, after it had printed that a rendezvous" in found.summary


def test_a_shells_word_with_the_rank_in_the_command(tmp_path: Path) -> None:
    line = "bash: line 1: 3523 Killed      HOROVOD_HOSTNAME=n-2 HOROVOD_RANK=4 HOROVOD_SIZE=8 python fit.py\n"
    found = diagnosed(tmp_path, line)
    assert named(found) == [("dead", [4])] and found.causes[0].nodes == ["n-2"]
