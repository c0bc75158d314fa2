"""Several that failed alike are no first one; what an engine repeats is a worker's; a tag names its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

SAW = "mpirun noticed that process rank 2 with PID 9103 on node reef4 exited on signal 7 (Bus error).\n"
FORTRAN = "{}: forrtl: severe (174): SIGSEGV, segmentation fault occurred\n"
WENT = "".join(f"{rank}: reading zone {rank}\n" for rank in range(24))


def crash(pid: int, signal: str = "Bus error (7)", torn: bool = False) -> str:
    """What Open MPI's handler prints of a process; of a torn one its own line on the signal is lost."""
    at = f"[reef4:{pid}]"
    head = "" if torn else f"{at} *** Process received signal ***\n{at} Signal: {signal}\n"
    return f"{head}{at} [ 0] /lib64/libc.so.6(+0x3e730)[0x7fc8a023e730]\n{at} *** End of error message ***\n"


def test_processes_that_crashed_alike_are_counted_beside_the_rank_that_mpirun_names(
    tmp_path: Path,
) -> None:
    log = crash(9101) + crash(9102, torn=True) + crash(9103) + crash(9104, torn=True)
    verdict = diagnosed(tmp_path, log + SAW)
    assert named(verdict) == [("dead", [2])] and verdict.causes[0].confidence <= 0.7
    assert "and 3 more on reef4 failed alike" in verdict.summary
    assert "which of them was first does not show" in verdict.summary
    of_the_rank = [c.says for c in verdict.causes[0].evidence if c.ranks == [2]]
    assert of_the_rank and all("9101" not in says for says in of_the_rank)


def test_one_crash_alone_was_first(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, crash(9103) + SAW)
    assert named(verdict) == [("dead", [2])] and "failed first" in verdict.summary


def test_a_crash_of_another_kind_is_not_counted(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, crash(9103) + crash(9101, "Floating point exception (8)") + SAW)
    assert "more" not in verdict.summary


def test_the_same_exit_of_other_tasks_makes_them_alike(tmp_path: Path) -> None:
    log = WENT + FORTRAN.format(21) + "srun: error: reef4: tasks 3-5,9: Exited with exit code 174\n"
    verdict = diagnosed(tmp_path, log)
    assert named(verdict) == [("error", [3, 4, 5, 9, 21])] and verdict.causes[0].confidence <= 0.7
    assert "Rank 21 and 4 more on reef4 failed alike" in verdict.summary


@pytest.mark.parametrize(
    "line",
    [
        "srun: error: reef4: tasks 3-5,9: Exited with exit code 1\n",
        "srun: error: reef4: task 21: Exited with exit code 174\n",
        "srun: Terminating job step 7.0\nsrun: error: reef4: tasks 3-5,9: Exited with exit code 174\n",
    ],
)
def test_another_exit_its_own_or_one_after_the_stop_is_not_alike(tmp_path: Path, line: str) -> None:
    verdict = diagnosed(tmp_path, WENT + FORTRAN.format(21) + line)
    assert named(verdict) == [("error", [21])] and "alike" not in verdict.summary


ENGINE = "(EngineCore_DP0 pid=31) ERROR 03-10 09:15:02 [core.py:70] "
RELAY = """\
Traceback (most recent call last):
  File "/opt/site-packages/vllm/v1/engine/core.py", line 60, in run_busy_loop
    self.step()
  File "/opt/site-packages/vllm/v1/executor/multiproc_executor.py", line 24, in get_response
    raise RuntimeError(
RuntimeError: Worker failed with error '{}', please check the stack trace above for the root cause
"""
OWN = """\
Traceback (most recent call last):
  File "/opt/reef/worker.py", line 5, in execute
    assert width % 8 == 0
AssertionError: width 12
"""


def by(prefix: str, text: str) -> str:
    """Each line with its prefix."""
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


def test_what_an_engine_repeats_is_its_workers(tmp_path: Path) -> None:
    memory = "NPU out of memory. Tried to allocate 3.00 GiB (NPU 0; 60.97 GiB total capacity)"
    verdict = diagnosed(tmp_path, by(ENGINE, RELAY.format(memory)))
    assert named(verdict) == [("error", [])]
    assert "A worker of vLLM's engine (the log does not show which) failed first" in verdict.summary
    assert "NPU's memory is full" in verdict.summary and "GPU" not in verdict.summary
    assert "get_response" not in str(verdict.causes[0])


def test_a_repeated_error_that_no_rule_knows_accuses_no_engine(tmp_path: Path) -> None:
    log = by(ENGINE, RELAY.format("width 12 is no multiple of 8"))
    verdict = diagnosed(tmp_path, log)
    assert not verdict.causes and "another process of the job failed" in verdict.summary
    process = diagnosed(
        tmp_path, log.replace(", please check the stack trace above for the root cause", "")
    )
    assert "A worker of vLLM's engine" in process.summary
    assert "width 12 is no multiple of 8" in process.summary
    assert "stack trace" not in process.summary


def test_the_workers_own_words_are_worth_more_than_the_engines(tmp_path: Path) -> None:
    worker = "(Worker_TP1 pid=42) ERROR 03-10 09:15:02 [executor.py:59] "
    log = by(ENGINE, RELAY.format("width 12")) + by(worker, OWN)
    verdict = diagnosed(tmp_path, log)
    assert named(verdict) == [("error", [1])] and "AssertionError" in verdict.summary


def test_an_engines_own_error_is_its_own(tmp_path: Path) -> None:
    own = RELAY.format("").replace("Worker failed with error '', please", "Queue is full; please")
    assert "A worker of" not in diagnosed(tmp_path, by(ENGINE, own)).summary


def test_a_full_gpu_is_still_a_gpu(tmp_path: Path) -> None:
    memory = "CUDA out of memory. Tried to allocate 3.00 GiB"
    assert "GPU's memory" in diagnosed(tmp_path, by(ENGINE, RELAY.format(memory))).summary


@pytest.mark.parametrize("tag, rank", [("[TP5 EP5]", 5), ("[TP5]", 5)])
def test_a_tag_before_a_traceback_names_the_rank(tmp_path: Path, tag: str, rank: int) -> None:
    verdict = diagnosed(tmp_path, f"{tag} Scheduler hit an exception: {OWN}")
    assert named(verdict) == [("error", [rank])]


def test_a_tag_with_further_axes_is_the_workers_name(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, f"[DP1 TP5] Scheduler hit an exception: {OWN}")
    assert named(verdict) == [("error", [])] and "DP1 TP5" in verdict.summary


def test_a_tag_that_is_no_place_names_nobody(tmp_path: Path) -> None:
    for tag in ("[TPU5]", "[TP5x]", "[STEP5]"):
        assert named(diagnosed(tmp_path, f"{tag} failed: {OWN}")) == [("error", [])]
