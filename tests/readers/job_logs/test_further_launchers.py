"""Words of further launchers, GPUs and libraries: who they name, and who only speaks.

Texts by the formats of their own strings.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

PADDLE = "ERROR 2024-03-04 05:06:07,123 launch_utils.py:545] ABORT!!! Out of all 8 trainers, the trainer process with rank=[5] was aborted. Please check its log.\n"
BEAT = "PaddleCheckError: the latest update of worker 3 is 600 secs ago, we doubt the the worker is not alive\n"
PRTE = "[n4:900] [prterun-n1-77@0,2] errmgr:prted:proc_errors process [prterun-n1-77@1,6] error state ABORTED BY SIGNAL\n"
FLUENT = "Error at Node 2: Negative cell volume detected.\nMPI Application rank 0 exited before MPI_Finalize() with status 2\n"
PLATFORM = "MPI Application rank 4 killed before MPI_Finalize() with signal 11\n"


@pytest.mark.parametrize(
    ("text", "rank"),
    [(PADDLE, 5), (BEAT, 3), (PRTE, 6), (FLUENT, 2), (PLATFORM, 4)],
    ids=["paddle", "paddle-heartbeat", "prte", "fluent", "platform-mpi"],
)
def test_the_rank_that_a_launcher_names(tmp_path: Path, text: str, rank: int) -> None:
    verdict = diagnosed(tmp_path, text)
    assert [ranks for _, ranks in named(verdict)] == [[rank]], verdict.summary


def test_missing_ranks_as_older_versions_of_horovod_list_them(tmp_path: Path) -> None:
    text = "some ranks wait for more than 60 seconds.\nMissing ranks:\n3: [grad_1, grad_2]\n5: [grad_1]\n"
    assert named(diagnosed(tmp_path, text)) == [("not_entered", [3, 5])]


def test_all_processes_that_horovods_launcher_saw_end_alike(tmp_path: Path) -> None:
    ends = "".join(f"Process {rank} exit with status code 250.\n" for rank in (2, 1, 0))
    raised = 'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n  File "/v/horovod/runner/launch.py", line 70, in run\n'
    verdict = diagnosed(tmp_path, ends + raised)
    assert named(verdict) == [] and "ranks 0-2 ended with exit code 250" in verdict.summary


def test_a_worker_of_dask_and_those_that_do_not_reach_it(tmp_path: Path) -> None:
    text = (
        "[LightGBM] [Warning] Connecting to rank 2 failed, waiting for 200 milliseconds\n"
        "distributed.nanny - INFO - Worker process 4711 was killed by signal 11\n"
        "[LightGBM] [Warning] Connecting to rank 2 failed, waiting for 260 milliseconds\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert "Process 4711 died first: killed by SIGSEGV" in verdict.summary


def test_a_task_of_spark_and_its_own_error(tmp_path: Path) -> None:
    head = "org.apache.spark.SparkException: Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most recent failure reason: Stage failed because barrier task ResultTask(3, 7) finished unsuccessfully.\n"
    verdict = diagnosed(tmp_path, head)
    assert "Worker ResultTask(3, 7)" in verdict.summary
    own = "Traceback (most recent call last):\n  File \"/job/fit.py\", line 4, in fit\nKeyError: 'y'\n"
    verdict = diagnosed(tmp_path / "own", head + own)
    assert "KeyError" in verdict.summary, "it says more than the launcher's word on it"


def test_a_job_of_sagemaker_and_how_its_program_ended(tmp_path: Path) -> None:
    text = "UnexpectedStatusException: Error for Training job t-1: Failed. Reason: AlgorithmError: ExecuteUserScriptError:\nExitCode 134\n"
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [] and "SIGABRT" in verdict.summary


def test_pods_that_kubernetes_evicted(tmp_path: Path) -> None:
    rows = "job-a-master-0   1/1   Running   0   9h\njob-a-worker-1   0/1   Evicted   0   18h\n"
    verdict = diagnosed(tmp_path, rows)
    assert "job-a-worker-1" in verdict.summary and "evicted" in verdict.summary
    assert "master" not in verdict.summary


def test_who_was_asked_to_end_and_by_whom(tmp_path: Path) -> None:
    text = "*** SIGTERM received by PID 81 (TID 81) on cpu 6 from PID 70; stack trace: ***\n"
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [] and "process 70 sent" in verdict.summary
    assert "launcher was" not in verdict.summary


def test_the_operating_systems_word_on_a_gpu(tmp_path: Path) -> None:
    fault = "[190.1] amdgpu 0000:3d:00.0: amdgpu: [mmhub0] no-retry page fault (src_id:0 ring:0)\n"
    whose = "[190.2] amdgpu 0000:3d:00.0: amdgpu:  for process python pid 6071 thread python pid 6071)\n"
    verdict = diagnosed(tmp_path, fault + whose)
    assert "Process 6071" in verdict.summary and "page fault" in verdict.summary
    calm = "[1.0] amdgpu 0000:3d:00.0: amdgpu: SMU is initialized successfully!\n"
    assert diagnosed(tmp_path / "calm", calm).causes == []


def test_a_card_that_refused_an_access_is_between_two_hosts(tmp_path: Path) -> None:
    event = "n7:238:1219 [0] transport/net_ib.cc:180 NCCL WARN NET/IB : mlx5_0:1 async fatal event on QP (0x7f6): local access violation work queue error\n"
    verdict = diagnosed(tmp_path, "2025-11-09 15:39:31.043 +08:00 [2025-11-09 07:39:30] " + event)
    assert [(c.kind, c.ranks) for c in verdict.causes] == [("in_communication", [])]
    assert "n7" in verdict.summary, "behind two stamps, the first with its zone apart"


def test_efa_names_the_instance_at_the_other_end(tmp_path: Path) -> None:
    line = "libfabric:45:17::efa:cq:efa_rdm_txe_handle_error():737<warn> err: 5, message: Invalid address My EFA addr: fi_addr_efa://[fe80::1]:0:1 My host id: i-0aa Peer EFA addr: fi_addr_efa://[fe80::2]:0:9 Peer host id: i-0bb (7)\n"
    verdict = diagnosed(tmp_path, line)
    assert "i-0bb: EFA could not send: Invalid address" in verdict.summary


def test_warnings_of_nccl_that_no_rule_knows(tmp_path: Path) -> None:
    line = "[1,23]<stdout>:n4:72:73 [7] component:459 NCCL WARN NET/Odd Couldn't warm up. RC: -22\n"
    verdict = diagnosed(tmp_path, line)
    assert (
        named(verdict) == [("error", [23])]
        and "Rank 23 (n4), process 72 (device 7), was the first" in verdict.summary
    )


HCCL = (
    "[ERROR] 2025-10-11-15:09:34 (PID:29, Device:0, RankID:101) ERR00100 PTA call acl api failed.\n"
    "EI0002: [PID: 29] The wait execution of the Notify register times out. Reason: The Notify register has not received the Notify record from remote rank: [{}]. group information: [group:[grp_9], rankSize[32], rankId[25]]\n"
)


def test_whom_a_rank_waited_for_in_hccl(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, HCCL.format(24))
    assert named(verdict) == []
    assert "rank 101 waited in HCCL to the limit, for rank 24 of group grp_9" in verdict.summary
    unknown = diagnosed(tmp_path / "unknown", HCCL.format(4294967295))
    assert "for rank" not in unknown.summary
