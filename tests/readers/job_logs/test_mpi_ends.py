"""Ends of MPI jobs: who called MPI_Abort, whom that ended, and what stands beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, ranks_of

ABORT = "Abort({code}) on node {rank} (rank {rank} in comm 496): application called MPI_Abort(comm=0x84000002, {code}) - process {rank}"


def test_aborts_in_a_part_of_the_job_are_of_the_ranks_of_the_whole(tmp_path: Path) -> None:
    lines = [f"{rank}: {ABORT.format(code=1, rank=rank)}" for rank in (26, 36, 14)]
    verdict = diagnosed(tmp_path, "\n".join(["0: lake has begun", *lines, ""]))
    assert ranks_of(verdict) == [14, 26, 36] and "was first does not show" in verdict.summary


def test_a_number_in_a_part_of_the_job_is_no_rank(tmp_path: Path) -> None:
    line = "application called MPI_Abort(comm=0x84000002, 1) - process 3"
    verdict = diagnosed(tmp_path, f"lake has begun\n{line}\n")
    assert ranks_of(verdict) == []


def test_what_srun_kills_after_an_abort_has_not_died_by_itself(tmp_path: Path) -> None:
    text = (
        "9: application called MPI_Abort(MPI_COMM_WORLD, 1) - process 9\n"
        "0: slurmstepd: error: *** STEP 7.0 ON n3 CANCELLED AT 2024-03-13T21:37:06 ***\n"
        "srun: error: n3: tasks 0-1,3-9: Killed\nsrun: error: n3: task 2: Exited with exit code 1\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert (
        ranks_of(verdict) == [9]
        and "MPI_Abort" in verdict.summary
        and "SIGKILL" not in verdict.summary
    )


def test_the_words_of_a_task_above_its_abort(tmp_path: Path) -> None:
    text = (
        "  0:  lake step 3\n  7:   unknown name_of_shore false\n  8:   lake went on\n  0:  lake step 4\n"
        "  7: MPICH ERROR [Rank 7] [job id 4711.0] [Sat Oct 18 02:47:34 2025] [n3] - Abort(1) (rank 7 in comm 496): "
        "application called MPI_Abort(comm=0x84000001, 1) - process 7\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert ranks_of(verdict) == [7] and verdict.causes[0].nodes == ["n3"]
    assert "unknown name_of_shore" in verdict.summary


def test_a_start_by_another_number_than_the_launchers(tmp_path: Path) -> None:
    text = (
        "13: MPICH ERROR [Rank 0] [job id unknown] [Fri Feb  9 07:12:51 2024] [n24] - Abort(1092879) (rank 0 in comm 0): "
        "Fatal error in PMPI_Init: Other MPI error, error stack:\n13: MPIR_Init_thread(170): \n13: MPID_Init(441).......: \n"
        "13: MPIR_pmi_init(110)...: PMI_Init returned 1\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert ranks_of(verdict) == [13] and "PMI_Init returned 1" in verdict.summary


@pytest.mark.parametrize(
    ("why", "says"),
    [
        ("Message too long - OK", "longer message than it has room for"),
        ("Cannot allocate memory", "did not get the memory"),
    ],
)
def test_the_end_of_a_stack_is_of_the_rank_of_its_head(tmp_path: Path, why: str, says: str) -> None:
    text = (
        "Abort(1681039) on node 18 (rank 18 in comm 0): Fatal error in PMPI_Recv: Other MPI error, error stack:\n"
        "PMPI_Recv(177).................: MPI_Recv(buf=0x7f, count=8, MPI_CHAR, src=96, tag=4, comm=0x84000001, status=0x7f) failed\n"
        f"MPIDI_OFI_handle_cq_error(1008): OFI poll failed (ofi_events.h:1008:MPIDI_OFI_handle_cq_error:{why})\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert "rank 18" in verdict.summary.lower() and says in verdict.summary
    assert 96 not in ranks_of(verdict)


def test_a_network_that_does_not_open_at_the_start_is_no_link(tmp_path: Path) -> None:
    text = "".join(
        f"Abort(1091471) on node {rank} (rank {rank} in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:\n"
        "MPIR_Init_thread(703)........: \nMPIDI_OFI_mpi_init_hook(1382): OFI get address vector map failed\n"
        for rank in (5, 12)
    )
    verdict = diagnosed(tmp_path, text)
    assert ranks_of(verdict) == [5, 12] and verdict.causes[0].kind == "error"


def test_the_assertion_above_mpis_own_abort(tmp_path: Path) -> None:
    text = (
        "Assertion failed in file /src/mpi/romio/ad_lake_open.c at line 474: lov_create != 0\n"
        "Rank 0 [Thu Feb 27 22:42:00 2020] [c4-0c0s12n3] internal ABORT - process 0\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert (
        ranks_of(verdict) == [0]
        and "ad_lake_open.c at line 474: lov_create != 0" in verdict.summary
    )


def test_numbers_in_brackets_before_the_same_words_are_processes(tmp_path: Path) -> None:
    words = "gave up in the halo: cannot open the queue"
    several = "".join(f"[{rank}] {words}\n" for rank in (5, 0, 3))
    assert ranks_of(diagnosed(tmp_path, f"lake has begun\n{several}")) == [0, 3, 5]
    assert ranks_of(diagnosed(tmp_path, f"lake has begun\n[5] {words}\n")) == []


def test_processes_that_report_one_link_are_counted(tmp_path: Path) -> None:
    text = "".join(
        f"[n7:{pid}:0:{pid}] ib_mlx5_log.c:139  Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)\n"
        for pid in (811, 812, 815)
    )
    verdict = diagnosed(tmp_path, text)
    assert verdict.causes[0].ranks == [] and "3 processes on n7" in verdict.summary


def test_sizes_that_differ_between_ranks_accuse_none(tmp_path: Path) -> None:
    text = (
        "MPICH ERROR [Rank 1] [job id 4711.0] [Fri Sep 23 17:26:26 2022] [n3] - Abort(475555330) (rank 1 in comm 0): "
        "Fatal error in MPIR_CRAY_Bcast_Tree: Invalid count, error stack:\n"
        "MPIR_CRAY_Bcast_Tree(183).......: message sizes do not match across processes in the collective routine: "
        "Received 12 but expected 2099\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert verdict.causes[0].kind == "mismatch" and ranks_of(verdict) == []
    assert "Received 12 but expected 2099" in verdict.summary


def test_a_wrong_call_is_still_its_callers(tmp_path: Path) -> None:
    text = (
        "Fatal error in PMPI_Allgather: Invalid buffer pointer, error stack:\n"
        "PMPI_Allgather(945).: Buffers must not be aliased\n"
        "[unset]: write_line error; fd=-1 buf=:cmd=abort exitcode=201926145\n:\n"
        "system msg for write_line failure : Bad file descriptor\n"
        "srun: error: n7: task 3: Exited with exit code 1\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert ranks_of(verdict) == [3] and "Buffers must not be aliased" in verdict.summary


def test_processes_without_a_transport_are_not_at_fault(tmp_path: Path) -> None:
    ruler = "-" * 74
    text = (
        f"{ruler}\nAt least one pair of MPI processes are unable to reach each other for\nMPI communications.\n\n"
        "  Process 1 ([[18551,1],1]) is on host: n34\n  Process 2 ([[18551,1],0]) is on host: n25\n"
        f"  BTLs attempted: self\n\nYour MPI job is now going to abort; sorry.\n{ruler}\n"
        "[n34:20880] *** An error occurred in MPI_Barrier\n[n34:20880] *** reported by process [1215758337,1]\n"
        "[n34:20880] *** on communicator MPI_COMM_WORLD\n[n34:20880] *** MPI_ERR_INTERN: internal error\n"
        "[n34:20880] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert verdict.causes[0].kind == "start_stall" and ranks_of(verdict) == []
    assert "BTLs attempted: self" in verdict.summary
