"""Devices that NCCL and HCCL name by themselves: shared GPUs, and devices whose heartbeats stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.report.terminal_report import plain
from tests.support.read_logs import diagnosed, named

# ---------------------------------------------------------------------- GPUs that ranks share


def shares(one: int, other: int, gpu: str, node: str = "n7", prefix: str = "") -> str:
    at = f"{prefix}{node}:{8000 + one}:{9000 + one} [{one % 2}]"
    twice = f"Duplicate GPU detected : rank {one} and rank {other} both on CUDA device {gpu}"
    return f"{at} init.cc:795 NCCL WARN {twice}\n{at} NCCL INFO init.cc:1358 -> 5\n"


def test_both_sides_of_each_pair(tmp_path: Path) -> None:
    """None of them failed before the others, also not the one that a traceback is of."""
    lines = [shares(6, 4, "31000"), shares(7, 5, "4b000"), shares(5, 7, "4b000")]
    found = diagnosed(tmp_path, "".join(lines))
    assert (found.status, named(found)) == ("failed", [("error", [4, 5, 6, 7])]), found.summary
    assert found.causes[0].nodes == ["n7"]
    assert "Ranks 4,6 use the same GPU (31000 on n7)" in found.summary
    assert "ranks 5,7 use the same GPU (4b000 on n7)" in found.summary
    evidence = [line for line in plain(found).splitlines() if line.startswith("  log ")]
    assert ["ranks 4,6" in line for line in evidence] == [True, False]


def test_all_ranks_of_several_nodes_that_took_their_first_gpu(tmp_path: Path) -> None:
    lines = [shares(n, 0, "1000", prefix=f"[1,{n}]<stdout>:") for n in (1, 2, 3)]
    lines += [shares(5, 4, "1000", "n8", "[1,5]<stdout>:")]
    found = diagnosed(tmp_path, "".join(lines))
    assert named(found) == [("error", [0, 1, 2, 3, 4, 5])], found.summary
    assert "Ranks 0-3 use the same GPU (1000 on n7)" in found.summary
    assert "ranks 4-5 use the same GPU (1000 on n8)" in found.summary


def test_in_the_message_of_an_exception(tmp_path: Path) -> None:
    text = (
        "[rank3]: Traceback (most recent call last):\n"
        '[rank3]:   File "/job/train.py", line 9, in main\n'
        "[rank3]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, "
        "invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.19.3\n"
        "[rank3]: ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
        "[rank3]: Last error:\n"
        "[rank3]: Duplicate GPU detected : rank 3 and rank 0 both on CUDA device f000\n"
    )
    found = diagnosed(tmp_path, text)
    assert named(found) == [("error", [0, 3])] and "failed first" not in found.summary


def test_numbers_of_a_smaller_group_name_no_other_rank(tmp_path: Path) -> None:
    """Rank 0 and 1 of a group of ranks 12 and 13, as the prefixes show."""
    lines = [shares(0, 1, "31000", prefix="[rank12]:"), shares(1, 0, "31000", prefix="[rank13]:")]
    found = diagnosed(tmp_path, "".join(lines))
    assert named(found) == [("error", [12, 13])], found.summary
    assert "Ranks 12-13 use the same GPU (31000 on n7)" in found.summary


# ---------------------------------------------------------------------- HCCL's heartbeats

WAITED = "EI0002: [PID: 72] 2026-11-03-11:59:30.645.648 The wait execution of the Notify register times out. Reason: The Notify register has not received the Notify record from remote rank [unknown]. task information: [\nthere are(is) 1 abnormal device(s):\n"
FORMS = (
    "    Cluster Exception Location[IP/ID]:[10.0.0.4/1], Arrival Time:[Tue Nov  3 11:56:34 2026], Discoverer:[10.0.0.4/0], ExceptionType:[Heartbeat Lost Occurred], Possible Reason:1. Process has exited, 2. Network Disconnected\n]\n",
    "        serverId[10.0.0.4], deviceId[1], Heartbeat Lost Occurred, Possible Reason: 1. Process has exited, 2. Network Disconnected\n]\n",
    "[INFO] HCCL(686,python):2026-11-03-11:56:34.191.363 [heartbeat.cc:951] [8970][TaskExecStage][HeartbeatAbnormal]local rank [10.0.0.4/0]: crimer rank [10.0.0.4/1] status[LOST] by informer rank [10.0.0.4/0]\n",
)


@pytest.mark.parametrize("line", FORMS, ids=["location", "server", "run log"])
def test_the_device_whose_heartbeats_stopped(tmp_path: Path, line: str) -> None:
    found = diagnosed(tmp_path, WAITED + line)
    assert (found.status, named(found)) == ("failed", [("unreachable", [])]), found.summary
    assert found.causes[0].nodes == ["10.0.0.4"]
    assert found.summary.startswith("Device 1 of 10.0.0.4 was lost first")


def test_the_exception_of_its_process_says_more(tmp_path: Path) -> None:
    own = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"/job/data.py\", line 3, in read\n[rank1]: KeyError: 'shard'\n"
    found = diagnosed(tmp_path, own + WAITED + FORMS[0])
    assert named(found) == [("error", [1])], found.summary


def test_a_device_that_only_seems_stuck_is_not_named(tmp_path: Path) -> None:
    """Every device that waits looks so."""
    found = diagnosed(tmp_path, WAITED + FORMS[0].replace("Heartbeat Lost", "Stuck"))
    assert (found.status, found.causes) == ("unknown", []), found.summary
