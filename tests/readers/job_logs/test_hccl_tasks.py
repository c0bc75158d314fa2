"""HCCL's lines on tasks that waited to their limit, as its guide shows them; kubectl's list of pods."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, named
from tests.support.written_logs import caught

TASK = (
    "[ERROR] HCCL({0},train):2026-01-24-11:18:29.499.247 [task_exception_handler.cc:9]"
    " [{0}][TaskExecStage][Timeout][Host]Task run failed, "
)
LINES = (
    TASK + "base information is streamID:[2], taskID[21], tag[{1}_{3}], AlgType(level 0-1-2):[ring].\n"
    + TASK + "groupRank information is group:[{3}], user define information[], rankSize[4], rankId[{2}].\n"
    + TASK + "opData information is timeStamp:[2026-01-24-11:16:29.500.000], deviceId[1], index[21],"
    " count[{4}], reduceType[sum], src[0x12], dst[0x13], dataType[float32].\n"
)  # fmt: skip


def task(
    rank: int, op: str = "AllReduce", group: str = "10.0.0.1%enp_60000", count: int = 256
) -> str:
    return LINES.format(7000 + rank, op, rank, group, count)


def test_two_operations_under_one_number_are_a_mismatch(tmp_path: Path) -> None:
    """The first line of one of them is cut, as where people copy from the middle of it."""
    first = task(0)
    found = diagnosed(tmp_path, first[first.index("tag[") :] + task(1, "AllGather"))
    assert named(found) == [("mismatch", [0, 1])] and "all_gather #21" in found.summary
    assert [event.says for event in found.chain if event.role == "wait"] == [
        "timed out in all_reduce #21 after 2 min",
        "timed out in all_gather #21 after 2 min",
    ]


def test_the_size_of_the_group_tells_who_did_not_wait(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "".join(task(rank) for rank in (0, 1, 3)))
    assert named(found) == [("not_entered", [2])], found.summary


def test_no_recorder_of_another_library_is_advised(tmp_path: Path) -> None:
    """Flight Recorder and its variables are of NCCL alone."""
    equal = diagnosed(tmp_path, "".join(task(rank) for rank in range(4)))
    assert "NCCL" not in equal.summary + "".join(c.advice for c in equal.causes)
    nccl = diagnosed(tmp_path, caught(1, 7))
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" in nccl.summary + "".join(c.advice for c in nccl.causes)


def test_ranks_within_several_groups_are_no_ranks_of_the_job(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, task(0) + task(1) + task(0, "AllGather", group="tp_1"))
    assert not [rank for _, ranks in named(found) for rank in ranks], found.summary


def test_a_pod_that_crashes_at_each_start_is_named(tmp_path: Path) -> None:
    rows = (
        "NAME                READY   STATUS             RESTARTS   AGE\n"
        "train-ab12-master-0   0/2     CrashLoopBackOff   8          2m32s\n"
        "train-ab12-worker-0   0/1     Init:1/2           0          2m31s\n"
        "other-754f4df755      1/1     Running            0          3m1s\n"
    )
    found = diagnosed(tmp_path, rows)
    assert named(found) == [("dead", [])] and "train-ab12-master-0" in found.summary
    assert "worker-0" not in found.summary


MINDSPORE = """\
Traceback (most recent call last):
  File "/job/train.py", line 37, in main
    model.train(10, data)
  File "/env/lib/python3.7/site-packages/mindspore/common/api.py", line 1337, in compile
    result = self._graph_executor.compile(obj, args_list, phase, self._use_vm_mode())
RuntimeError: Preprocess failed before run graph 0. The details refer to 'Ascend Error Message'.

----------------------------------------------------
- Ascend Error Message:
----------------------------------------------------
{}
"""


def test_mindspore_points_to_the_message_of_ascend_that_says_why(tmp_path: Path) -> None:
    sizes = "EI0005: The arguments for collective communication are inconsistent between ranks: tag [HcomAllReduce_66_0], parameter [count], local [9556480], remote [9555712]"
    found = diagnosed(tmp_path, MINDSPORE.format(sizes))
    assert named(found) == [("mismatch", [])], found.summary
    assert "9556480 on the one side and 9555712 on the other" in found.summary
    waits = "EI0006: Getting socket times out. Reason: 1. The remote does not initiate a connect request."
    found = diagnosed(tmp_path, MINDSPORE.format(waits))
    assert named(found) == [] and "waited in HCCL to the limit" in found.summary
