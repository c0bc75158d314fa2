"""Prefixes that name a rank in other ways, and what a rank says in words of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

RAISED = [
    "Traceback (most recent call last):",
    '  File "/job/melt.py", line 40, in main',
    "    Pour(cfg)",
    '  File "/job/melt.py", line 12, in Pour',
    "    heat = table[key]",
    "KeyError: 'w9'",
]


@pytest.mark.parametrize(
    "prefix",
    ["rank3: ", "Rank 3: ", "(Rank3 pid=4411) ", "[1,3]<stderr>:", "Sun Mar  3 10:00:01 2024[1,3]<stderr>:", "[rank 3] "],
)  # fmt: skip
def test_a_traceback_behind_a_prefix(tmp_path: Path, prefix: str) -> None:
    other = prefix.replace("3:", "0:").replace("3]", "0]").replace("Rank3", "Rank0")
    lines = [prefix + line for line in RAISED] + [other + "step 4"]
    found = diagnosed(tmp_path, "\n".join(lines) + "\n")
    assert named(found) == [("error", [3])], found.summary
    assert "KeyError in Pour (melt.py:12)" in found.summary


def test_a_call_in_a_tracebacks_source_is_no_exception(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "\n".join(RAISED) + "\n")
    assert "KeyError" in found.summary and len(found.causes) == 1


def test_what_a_rank_calls_fatal(tmp_path: Path) -> None:
    line = "[rank2]: FATAL: the deck has no section 'mesh'\n[rank0]: step 4\n"
    assert named(diagnosed(tmp_path, line)) == [("error", [2])]
    of_others = "[rank2]: FATAL: lost the connection to a peer\n[rank0]: step 4\n"
    assert named(diagnosed(tmp_path / "others", of_others)) == [("in_communication", [])]
    nameless = "FATAL: the deck has no section 'mesh'\nstep 4\n"
    assert named(diagnosed(tmp_path / "nameless", nameless)) == []


def test_an_error_of_the_rank_that_ended_is_its_own(tmp_path: Path) -> None:
    said = "[rank5]: ERROR: residual 1e30 at cell 8\n[rank0]: step 4\n"
    left = 'mpirun has exited due to process rank 5 with PID 0 on node k3 exiting without calling "finalize".\n'
    found = diagnosed(tmp_path, said + left)
    assert named(found) == [("error", [5])] and "residual 1e30" in found.summary
    assert named(diagnosed(tmp_path / "alone", said)) == [], "nothing shows that it ended"


def test_tests_that_failed_on_ranks(tmp_path: Path) -> None:
    lines = "".join(
        f"[1,{rank}]<stdout>:2 checks failed on rank {rank} (5 run).\n" for rank in (2, 0, 1)
    )
    abort = "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n"
    found = diagnosed(tmp_path, lines + abort)
    assert named(found) == [("error", [0, 1, 2])] and "2 checks failed" in found.summary


def test_slurms_own_reason_and_whom_its_list_leaves_out(tmp_path: Path) -> None:
    step = "slurmstepd: error: *** STEP 9.0 ON c1 CANCELLED AT 2026-04-01T10:00:00 DUE TO {} ***\n"
    swept = "srun: error: c1: tasks 0-10,12-15: Terminated\n"
    found = diagnosed(tmp_path, step.format("TASK FAILURE") + swept)
    assert found.causes == [] and "task 11 is not among those" in found.summary
    assert "scancel" not in found.summary
    other = diagnosed(tmp_path / "other", step.format("JOB REQUEUE"))
    assert "due to job requeue" in other.summary and "scancel" not in other.summary


def test_a_lost_gpu_in_what_tools_of_the_node_print(tmp_path: Path) -> None:
    smi = "Unable to determine the device handle for GPU 0000:1B:00.0: Unknown Error\n"
    found = diagnosed(tmp_path, smi)
    assert "0000:1B:00.0" in found.summary and "which rank used it does not show" in found.summary
    link = "pcieport 0000:00:03.0: AER: Corrected error received: 0000:00:03.0\n"
    corrected = diagnosed(tmp_path / "link", link)
    assert corrected.causes == [] and "0000:00:03.0" in corrected.summary


def test_the_recorders_stack_without_the_line_of_the_wait(tmp_path: Path) -> None:
    text = (
        "[rank3]:[E508 07:35:59.4 ProcessGroupNCCL.cpp:733] Stack trace of the failed collective: \n"
        "#0 broadcast from /v/torch/distributed/distributed_c10d.py:2968\n"
        "#1 hand_on from /job/pipe.py:44\n"
    )
    found = diagnosed(tmp_path, text)
    assert found.causes == [] and "only rank 3 waits" in found.summary
    assert "broadcast in hand_on (pipe.py:44)" in found.summary


def test_a_crash_and_the_rank_that_its_launcher_names(tmp_path: Path) -> None:
    crash = (
        "[c125:5185] *** Process received signal ***\n[c125:5185] Signal: Segmentation fault (11)\n"
    )
    end = "mpirun noticed that process rank 4 with PID 0 on node {} exited on signal 11 (Segmentation fault).\n"
    assert named(diagnosed(tmp_path, crash + end.format("c125"))) == [("dead", [4])]
    other = diagnosed(tmp_path / "other", crash)
    assert named(other) == [("dead", [])] and "5185" in other.summary
