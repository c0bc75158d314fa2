"""Lines that only say that a process ends, or how, beside those of the same block that say why."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.readers.job_logs.failure_words import is_end, judged
from tests.support.read_logs import diagnosed, named

ABORTED = "".join(
    f"application called MPI_Abort(MPI_COMM_WORLD, 1) - process {n}\n" for n in (1, 4, 6)
)


@pytest.mark.parametrize(
    "line",
    [
        "application called MPI_Abort(MPI_COMM_WORLD, 3) - process 2",
        "*** MPI_ERRORS_ARE_FATAL (your MPI job will now abort)",
        "Fatal Python error: Aborted",
        "*** SIGABRT received at time=1743139179 on cpu 3 ***",
        "Aborted (core dumped)",
    ],
)
def test_an_end_says_no_reason(line: str) -> None:
    assert is_end(line)


@pytest.mark.parametrize(
    "line",
    [
        "Fatal Python error: PyThreadState_Get: the function must be called with the GIL held",
        "aborting: the lake has no outlet",
        "tile 3 calls MPI_Abort since its depth is negative",
    ],
)
def test_a_reason_is_no_end(line: str) -> None:
    assert not is_end(line)


def test_the_rank_that_the_program_names_beside_the_aborts_of_others(tmp_path: Path) -> None:
    text = f"reading tiles\nError occurred on rank 9.\nExiting, all files are kept.\n{ABORTED}"
    found = diagnosed(tmp_path, text)
    assert named(found) == [("error", [9])], found.summary


def test_two_that_are_named_beside_aborts_are_not_chosen_from(tmp_path: Path) -> None:
    text = f"Error occurred on rank 9.\nError occurred on rank 3.\n{ABORTED}"
    found = diagnosed(tmp_path, text)
    assert not any(cause.ranks in ([9], [3]) for cause in found.causes), found.summary


def test_the_first_abort_alone_is_no_failure_in_unknown_words(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, f"reading tiles\n{ABORTED}")
    assert "was the first to print a failure" not in found.summary, found.summary


def test_a_block_of_open_mpi_without_process_names_its_call(tmp_path: Path) -> None:
    text = (
        "*** An error occurred in MPI_Scatterv\n*** on communicator MPI_COMM_WORLD\n"
        "*** MPI_ERR_IN_STATUS: error code in status\n*** MPI_ERRORS_ARE_FATAL (your MPI job will now abort)\n"
    )
    found = diagnosed(tmp_path, text)
    assert found.causes == [] and "MPI failed in MPI_Scatterv" in found.summary


def test_what_fails_while_it_tidies_up_is_no_first_failure(tmp_path: Path) -> None:
    text = (
        "Error in system call pthread_cond_destroy: Device or resource busy\n"
        "Abort(99) on node 2 (rank 2 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:\n"
        "MPIR_Init_thread(100)........:\n"
    )
    found = diagnosed(tmp_path, text)
    assert "PMPI_Init" in found.summary and "pthread_cond_destroy" not in found.summary
    assert judged("ERROR cannot write the tile: no space left") is not None


# ------------------------------------------------------------------ exceptions of C++

THROWN = (
    "terminate called after throwing an instance of 'lake::InputError'\nwhat():\n"
    "(core/Tile.cpp:75) void lake::Tile::error(const std::string&) const\n"
    "unknown key DEPHT in the input of tile 3\n"
)
NOTICE = "mpirun noticed that process rank 2 with PID 7 on node n4 exited on signal 6 (Aborted).\n"


def test_the_words_below_what(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, f"{THROWN}{NOTICE}")
    assert named(found) == [("error", [2])], found.summary
    assert "an uncaught exception of C++: unknown key DEPHT in the input of tile 3" in found.summary


def test_the_same_words_of_two_processes(tmp_path: Path) -> None:
    signals = "".join(f"[n4:{pid}] Signal: Aborted (6)\n" for pid in (811, 812))
    found = diagnosed(tmp_path, f"{THROWN}{THROWN}{signals}{NOTICE}")
    assert "and 1 more failed alike" in found.summary, found.summary
    assert "unknown key DEPHT" in found.summary


def test_an_exception_without_words_is_told_by_its_type(tmp_path: Path) -> None:
    text = f"terminate called after throwing an instance of 'lake::InputError'\nAborted\n{NOTICE}"
    found = diagnosed(tmp_path, text)
    assert named(found) == [("error", [2])], found.summary
    assert "lake::InputError" in found.summary


def test_an_exception_of_a_watchdog_is_no_reason_of_its_own(tmp_path: Path) -> None:
    text = f"terminate called after throwing an instance of 'c10::DistBackendError'\n{NOTICE}"
    found = diagnosed(tmp_path, text)
    assert "uncaught exception" not in found.summary, found.summary


def test_words_behind_what_are_told_once(tmp_path: Path) -> None:
    text = (
        "terminate called after throwing an instance of 'std::runtime_error'\n"
        f"  what():  the lake has no outlet\n{NOTICE}"
    )
    found = diagnosed(tmp_path, text)
    assert "an uncaught exception of C++: the lake has no outlet" in found.summary
    assert "runtime_error" not in found.summary


# ------------------------------------------------------------------ limits of memory, and a broken heap


def test_slurms_limit_of_memory_is_the_reason_of_its_kill(tmp_path: Path) -> None:
    text = (
        "slurmstepd: error: Step 81.0 exceeded memory limit (7000 > 6000), being killed\n"
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        "srun: error: n8: task 0: Killed\n"
    )
    found = diagnosed(tmp_path, text)
    assert "Rank 0 (n8) died first: killed for lack of memory" in found.summary


def test_a_limit_that_was_met_at_some_point_has_killed_nobody(tmp_path: Path) -> None:
    text = "slurmstepd: error: Exceeded step memory limit at some point.\nsrun: error: n8: task 0: Killed\n"
    found = diagnosed(tmp_path, text)
    assert "for lack of memory" not in found.summary, found.summary


def test_two_jobs_have_each_their_node(tmp_path: Path) -> None:
    text = (
        "slurmstepd: error: Step {0}.0 exceeded memory limit (7000 > 6000), being killed\n"
        "slurmstepd: error: *** STEP {0}.0 ON {1} CANCELLED AT 2031-02-27T11:22:33 ***\n"
        "srun: error: {1}: task 0: Killed\n"
    )
    runs = {"a.log": text.format(1000, "n1"), "b.log": text.format(2000, "n2")}
    found = diagnosed(tmp_path, runs)
    assert "Rank 0 (n2) died first: killed for lack of memory" in found.summary


def test_a_worker_that_crashed_before_its_driver_saw_another_one_die(tmp_path: Path) -> None:
    text = (
        "(Worker pid=71, ip=10.0.0.7) free(): double free detected in tcache 2\n"
        "(Worker pid=71, ip=10.0.0.7) *** SIGABRT received at time=1743139179 on cpu 3 ***\n"
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. "
        "Worker ID: 1d2a Node ID: 651b Worker IP address: 10.0.0.7 Worker port: 10013 Worker PID: 70 Worker exit type: SYSTEM_ERROR\n"
    )
    found = diagnosed(tmp_path, text)
    assert found.summary.startswith("Process 71 on 10.0.0.7 failed first"), found.summary
