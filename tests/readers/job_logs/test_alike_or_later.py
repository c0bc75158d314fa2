"""Processes that failed alike are several; one that ended clearly later is no equal of the first."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, named
from tests.support.written_logs import failed, table

CHECK = "GPU CHECK failed: CUDA driver version is insufficient for CUDA runtime version at field.cu:88\n"
MPIRUN = """\
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[4711,1],3]
  Exit code:    1
"""
CXX = "terminate called after throwing an instance of 'c10::CUDAError'\n  what():  CUDA error: unknown error\n"
SAW = "{}[0304 10:00:0{}.1 50 torch/distributed/elastic/multiprocessing/api.py:{}] {}\n"
AT = "2024-03-04_10:00:01"
FIRST = "{}ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -11) local_rank: 0 (pid: 61) of binary: /bin/python\n"
TERM = "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 62 closing signal SIGTERM\n"
RAY = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. Lease ID: 01 Worker ID: aa "
    "Node ID: bb Worker IP address: 10.7.0.3 Worker port: 45 Worker PID: {} Worker exit type: SYSTEM_ERROR Worker exit detail: gone.\n"
)
LOST = "(Actor pid=44) [rank7]:[W1120 01:13:20.886560089 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=8, addr=[a]:5, remote=[b]:5): Connection reset by peer\n"


def both(code: int) -> str:
    """torchrun's table: rank 0 crashed first, and rank 1 ended in the same second."""
    return table(failed(0, -11, 61, AT), failed(1, code, 62, AT))


def test_equal_lines_of_a_check_are_of_as_many_processes(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, CHECK * 4 + MPIRUN)
    assert named(verdict) == [("error", [3])] and verdict.causes[0].confidence <= 0.7
    assert "and 3 more failed alike, and which of them was first does not show" in verdict.summary


def test_one_line_is_of_the_one_that_ended_first(tmp_path: Path) -> None:
    assert "Rank 3 failed first" in diagnosed(tmp_path, CHECK + MPIRUN).summary


def test_lines_with_a_number_repeat_one_process(tmp_path: Path) -> None:
    assert "more" not in diagnosed(tmp_path, f"[3] {CHECK}" * 4 + MPIRUN).summary


def test_each_process_of_cxx_has_its_last_words_once(tmp_path: Path) -> None:
    assert "and 1 more failed alike" in diagnosed(tmp_path, CXX * 2).summary
    assert "alike" not in diagnosed(tmp_path / "one", {"one.log": CXX}).summary


def test_crashes_of_one_second_are_alike(tmp_path: Path) -> None:
    glued = "Packing 91/91 [00:00<?, ? it/s]"
    for name, text in (("glued", FIRST.format(glued)), ("told", TERM + FIRST.format(""))):
        verdict = diagnosed(tmp_path / name, {"job.log": text + both(-11)})
        assert named(verdict) == [("dead", [0, 1])], name
        assert "which of them was first does not show" in verdict.summary


def test_divisions_by_zero_are_crashes_as_well(tmp_path: Path) -> None:
    text = (TERM + FIRST.format("") + both(-11)).replace("-11", "-8").replace("SIGSEGV", "SIGFPE")
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("dead", [0, 1])], verdict.summary
    assert "which of them was first does not show" in verdict.summary


def test_a_process_that_the_launcher_ended_is_not_alike(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, TERM + FIRST.format("") + both(-15))
    assert named(verdict) == [("dead", [0])] and "does not show" not in verdict.summary


def test_a_worker_that_died_after_others_had_lost_the_first_is_no_equal(tmp_path: Path) -> None:
    assert diagnosed(tmp_path, RAY.format(61) + LOST + RAY.format(62)).summary.startswith(
        "Process 61 "
    )
    both = diagnosed(tmp_path / "both", {"job.log": RAY.format(61) + RAY.format(62) + LOST})
    assert both.summary.startswith("2 processes")
