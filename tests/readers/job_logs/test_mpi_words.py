"""What MPI, its launchers and Fortran's runtimes say of a process that ended.

Texts by the formats of their own strings.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

RULE = "=" * 83 + "\n"


def box(rank: int, end: str, node: str = "n7") -> str:
    """One of Hydra's boxes."""
    head = "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
    where = f"=   RANK {rank} PID {7000 + rank} RUNNING AT {node}\n"
    return f"{RULE}{head}{where}=   {end}\n{RULE}\n"


KILLED = "KILLED BY SIGNAL: 9 (Killed)"


def test_who_crashed_and_not_those_that_hydra_killed_for_it(tmp_path: Path) -> None:
    crashed = box(2, "KILLED BY SIGNAL: 11 (Segmentation fault)", node="n8")
    text = box(0, KILLED) + box(1, KILLED) + crashed + box(3, KILLED)
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("dead", [2])] and verdict.causes[0].nodes == ["n8"]
    exited = box(0, KILLED) + box(1, "EXIT STATUS: 3") + box(2, KILLED)
    verdict = diagnosed(tmp_path, exited)
    assert named(verdict) == [("dead", [1])] and "exit code 3" in verdict.summary


def test_which_of_several_was_killed_first_hydra_does_not_tell(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, "".join(box(rank, KILLED) for rank in (4, 5, 6)))
    assert (verdict.status, verdict.causes) == ("unknown", [])
    assert "ranks 4-6" in verdict.summary and "those ranks" in verdict.summary
    assert "dmesg" in verdict.summary, "the kernel may have killed one of them"


def test_the_older_mpd_lists_them_too(tmp_path: Path) -> None:
    def ended(rank: int, how: str) -> str:
        return (
            f"rank {rank} in job 7  n1_4711   caused collective abort of all ranks\n"
            f"  exit status of rank {rank}: {how} \n"
        )

    text = ended(2, "killed by signal 9") + ended(1, "killed by signal 11")
    assert named(diagnosed(tmp_path, text)) == [("dead", [1])]
    text = ended(2, "killed by signal 9") + ended(0, "return code 4")
    assert named(diagnosed(tmp_path, text)) == [("dead", [0])]


def test_a_launchers_word_that_was_broken_in_two(tmp_path: Path) -> None:
    for text in (
        "mpirun noticed that process rank 6 with PID 204 on\nnode n17 exited on signal 11 (Segmentation fault).\n",
        "mpiexec noticed that process rank 6 with PID 204 on node n17 exited on \nsignal 11 (Segmentation fault).\n",
    ):
        verdict = diagnosed(tmp_path, text)
        assert named(verdict) == [("dead", [6])] and verdict.causes[0].nodes == ["n17"]


def test_an_abort_that_mpirun_saw_first(tmp_path: Path) -> None:
    text = "mpirun noticed that process rank 2 with PID 204 on node n17 exited on signal 6 (Aborted).\n"
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("dead", [2])]
    advice = verdict.causes[0].advice
    assert "gloo" not in advice and "torchrun" not in advice and "mpirun" in advice


def test_a_rank_that_left_without_mpis_end(tmp_path: Path) -> None:
    text = (
        "mpirun has exited due to process rank 3 with PID 43 on\n"
        "node n5 exiting improperly. There are three reasons this could occur:\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("dead", [3])] and "MPI_Finalize" in verdict.summary


@pytest.mark.parametrize(
    "text",
    [
        "MPI_ABORT was invoked on rank 12 in communicator MPI_COMM_WORLD\n   with errorcode -1719000000.\n",
        "MPI_ABORT was invoked on rank 12 in communicator MPI COMMUNICATOR 3 DUP FROM 0\nwith errorcode 1.\n",
        "MPI_ABORT was invoked on rank 12 in communicator MPI_COMM_WORLD\n  Proc: [[7,1],12]\n  Errorcode: 139\n",
        "application called MPI_Abort(MPI_COMM_WORLD, -1) - process 12\n",
    ],
)
def test_who_called_mpi_abort(tmp_path: Path, text: str) -> None:
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("dead", [12])]
    assert "called MPI_Abort" in verdict.summary and "signal" not in verdict.summary
    assert any("MPI_A" in event.says for event in verdict.chain if event.role == "cause")


def test_all_that_called_mpi_abort_are_named(tmp_path: Path) -> None:
    text = "".join(
        f"application called MPI_Abort(MPI_COMM_WORLD, 1) - process {r}\n" for r in (3, 1)
    )
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("dead", [1, 3])] and "they called MPI_Abort" in verdict.summary


@pytest.mark.parametrize(
    ("text", "node"),
    [
        (
            "MPT ERROR: Rank 5(g:5) received signal SIGSEGV(11).\n\tProcess ID: 42, Host: n9\n",
            ["n9"],
        ),
        (
            "MPT: On host n9, Program /a/b, Rank 5, Process 42 received signal SIGABRT/SIGIOT(6)\n",
            ["n9"],
        ),
        ("*** Caught a fatal signal (proc 5): SIGBUS(7)\n", []),
        ("*** Caught a fatal signal: SIGSEGV(11) on node 5/8\n", []),
    ],
)
def test_a_signal_in_the_words_of_a_library(tmp_path: Path, text: str, node: list[str]) -> None:
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("dead", [5])] and verdict.causes[0].nodes == node


def test_host_and_process_of_a_crash(tmp_path: Path) -> None:
    for text in (
        "[n17:204:0:204] Caught signal 11 (Segmentation fault: address not mapped to object)\n",
        "[n17:204] Signal: Segmentation fault (11)\n",
        "[n17:204:0:204] Caught signal 8 (Floating point exception: integer divide by zero)\n",
    ):
        verdict = diagnosed(tmp_path, text)
        assert named(verdict) == [("dead", [])] and verdict.causes[0].nodes == ["n17"]
        assert verdict.summary.startswith("Process 204 on n17 failed first")


def test_a_daemon_that_open_mpi_lost(tmp_path: Path) -> None:
    text = (
        "ORTE has lost communication with a remote daemon.\n\n"
        "  HNP daemon   : [[43015,0],0] on node run-launcher-x\n"
        "  Remote daemon: [[43015,0],20] on node run-worker-19\n\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("unreachable", [])]
    assert verdict.causes[0].nodes == ["run-worker-19"] and "Open MPI lost it" in verdict.summary


@pytest.mark.parametrize(
    "line",
    [
        "ssh: Could not resolve hostname w-1.job: Name or service not known",
        "ssh: connect to host w-1.job port 22: Connection refused",
        "root@w-1.job: Permission denied (publickey,password).",
    ],
)
def test_a_node_that_the_launcher_cannot_start_on(tmp_path: Path, line: str) -> None:
    text = f"{line}\nORTE was unable to reliably start one or more daemons.\n"
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("start_stall", [])] and verdict.causes[0].nodes == ["w-1.job"]
    assert verdict.summary.startswith("The job did not start on w-1.job")


def test_a_fortran_runtimes_word_and_not_that_of_who_was_stopped(tmp_path: Path) -> None:
    text = (
        "0: step 12 done\n1: step 12 done\n"
        "5: forrtl: severe (174): SIGSEGV, segmentation fault occurred\n"
        "0: slurmstepd: error: *** STEP 77.0 ON n1 CANCELLED AT 2026-06-10T10:00:00 ***\n"
        "0: forrtl: error (78): process killed (SIGTERM)\n"
        "srun: error: n3: task 5: Exited with exit code 174\n"
        "srun: error: n1: tasks 0-1: Terminated\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("error", [5])] and "SIGSEGV" in verdict.summary
    gnu = "Fortran runtime error: End of file\n  Process name: [[11829,1],2]\n  Exit code:    2\n"
    verdict = diagnosed(tmp_path, gnu)
    assert named(verdict) == [("error", [2])] and "End of file" in verdict.summary


def test_a_process_of_mapls(tmp_path: Path) -> None:
    text = "pe=00007 FAIL at line=00257    Cap.F90              <needs informative message>\n"
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("error", [7])] and "Cap.F90:00257" in verdict.summary


def test_a_status_that_mapl_hands_on_is_no_failure_of_its_own(tmp_path: Path) -> None:
    text = (
        "pe=00002 FAIL at line=00030    Main.F90              <status=1>\n"
        "pe=00000 FAIL at line=01961    ExtData.F90           <File ./HcoDir/gmi.nc not found>\n"
        "pe=00000 FAIL at line=00030    Main.F90              <status=1>\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("error", [0])]
    assert "ExtData.F90:01961, 'File ./HcoDir/gmi.nc not found'" in verdict.summary


def test_an_mpi_message_that_is_too_long_names_neither_side(tmp_path: Path) -> None:
    text = (
        "Abort(4) on node 34 (rank 34 in comm 0): Fatal error in PMPI_Recv: Message truncated, error stack:\n"
        "PMPI_Recv(171): MPI_Recv(buf=0x4, count=1, src=53, tag=9, comm=0x84000001) failed\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("mismatch", [])]
    assert "longer message" in verdict.summary


def test_an_mpi_error_of_ones_own_and_one_for_anothers_end(tmp_path: Path) -> None:
    own = "Abort(4) on node 3 (rank 3 in comm 0): Fatal error in PMPI_Send: Invalid rank, error stack:\n"
    verdict = diagnosed(tmp_path, own)
    assert named(verdict) == [("error", [3])] and "Invalid rank" in verdict.summary
    other = "Abort(1) on node 2 (rank 2 in comm 0): Fatal error in PMPI_Wait: Other MPI error, error stack:\n"
    verdict = diagnosed(tmp_path, other)
    assert verdict.causes == [] and "rank 2" in verdict.summary
    killed = (
        "mpirun noticed that process rank 5 with PID 20 on node n2 exited on signal 9 (Killed).\n"
    )
    assert named(diagnosed(tmp_path, other + killed)) == [("dead", [5])]


def test_horovods_advice_has_nothing_of_nccl(tmp_path: Path) -> None:
    text = (
        "WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks "
        "and are waiting for remainder of ranks. Stalled ops: HorovodAllreduce_a_0 [ready ranks: 0, 2, 1], "
        "HorovodAllreduce_b_0 [ready ranks: 3]\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("not_entered", [3])]
    assert "NCCL" not in verdict.causes[0].advice


def test_a_kernel_of_rocm_that_reads_elsewhere(tmp_path: Path) -> None:
    text = (
        "Memory access fault by GPU node-4 (Agent handle: 0x5) on address (nil). Reason: Unknown.\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("error", [])] and "GPU node-4" in verdict.summary


def test_the_task_that_aborted_before_srun_ended_the_step(tmp_path: Path) -> None:
    end = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-02-28T10:59:46 ***\n"
    text = "srun: error: n3: task 43: Aborted\nsrun: Terminating job step 7.0\n" + end
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("dead", [43])] and verdict.causes[0].nodes == ["n3"]
    several = "srun: error: n3: tasks 4-7: Aborted\nsrun: Terminating job step 7.0\n" + end
    assert diagnosed(tmp_path, several).causes == [], "which came first does not show"


def test_petscs_word_of_a_signal(tmp_path: Path) -> None:
    asked = "[{}]PETSC ERROR: Caught signal number 15 Terminate: Some process has told this process to end\n"
    crashed = "[2]PETSC ERROR: Caught signal number 11 SEGV: Segmentation Violation, probably memory access\n"
    text = asked.format(0) + crashed + asked.format(1)
    assert named(diagnosed(tmp_path, text)) == [("dead", [2])]
    assert diagnosed(tmp_path, asked.format(0)).causes == []


def test_lammps_names_the_process(tmp_path: Path) -> None:
    text = "ERROR on proc 17: Out of range atoms - cannot compute PPPM (src/KSPACE/pppm.cpp:1940)\n"
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("error", [17])] and "Out of range atoms - cannot" in verdict.summary


def test_the_models_own_end_and_crays_word_of_it(tmp_path: Path) -> None:
    own = " ERROR: bad radiation balance submitted to shr_sys_abort.\n"
    verdict = diagnosed(tmp_path, own)
    assert named(verdict) == [("error", [])] and "bad radiation balance" in verdict.summary
    ended = "_pmiu_daemon(SIGCHLD): [NID 00768] [c2-0c0s3n2] [Sat Sep 24 03:28:42 2026] PE RANK 16 exit signal Aborted\n"
    verdict = diagnosed(tmp_path, own + ended)
    assert named(verdict) == [("error", [16])] and verdict.causes[0].nodes == ["NID 00768"]
    assert named(diagnosed(tmp_path, ended)) == [("dead", [16])]


def test_hpes_word_of_an_abort(tmp_path: Path) -> None:
    text = "MPT ERROR: Rank 4(g:4) is aborting with error code 1.\n\tProcess ID: 39, Host: n2\n"
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("dead", [4])] and "MPI_Abort" in verdict.summary
