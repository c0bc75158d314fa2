"""Prefixes of launchers and collectors of logs, and what stands behind them."""

from __future__ import annotations

from pathlib import Path

from hangdoctor.readers.job_logs.habits import habits
from tests.support.read_logs import diagnosed

CRASHES = """\
5f1c-77aa || Process 3 exit with status code 139.
5f1c-77aa || Process 1 exit with status code 139.
5f1c-77aa || Process 4 exit with status code 139.
"""
PENDING = """\
x4c6.lab.example 1: rank 1 ; local rank 1
x4c6.lab.example 1: 1 pending requests in pool 0
x4c6.lab.example 1:     ac000000: MPIDIG_do_irecv: source=0, tag=2, count=192, datatype=4c810831
x4c6.lab.example 1: /opt/mpich/lib/libmpi.so.12(+0xaefc84) [0x154542]
"""
DISAGREE = """\
Abort(58) on node 1 (rank 1 in comm 0): Fatal error in internal_Barrier: Other MPI error, error stack:
internal_Barrier(84)...................: MPI_Barrier(comm=0x84000001) failed
MPIDI_POSIX_mpi_release_gather(218): message sizes do not match across processes in the collective routine: Received 0 but expected 1
"""
LOST = """\
Abort(58) on node 1 (rank 1 in comm 0): Fatal error in internal_Barrier: Other MPI error, error stack:
internal_Barrier(84)...................: MPI_Barrier(comm=0x84000001) failed
MPIDI_progress(218): connection to peer closed
"""


def test_a_job_before_two_bars(tmp_path: Path) -> None:
    said = diagnosed(tmp_path, CRASHES)
    assert said.causes[0].ranks == [1, 3, 4] and "which of them was first does not" in said.summary


def test_a_host_and_its_rank(tmp_path: Path) -> None:
    said = diagnosed(tmp_path, PENDING)
    assert said.causes == [] and "rank 1 from rank 0 with tag 2" in said.summary


def test_steps_that_count_up_are_no_ranks() -> None:
    lines = [f"epoch1 {step}: loss 2.{step}" for step in range(40)]
    assert habits(lines).first is None


def test_what_mpi_compared_among_ranks_is_a_mismatch(tmp_path: Path) -> None:
    said = diagnosed(tmp_path, DISAGREE)
    assert [(cause.kind, cause.ranks) for cause in said.causes] == [("mismatch", [])]
    assert "MPI found in MPI_Barrier that sizes do not match" in said.summary


def test_a_lost_connection_is_none(tmp_path: Path) -> None:
    assert diagnosed(tmp_path, LOST).causes == []


def test_a_stamp_on_one_line_does_not_part_those_that_died_alike(tmp_path: Path) -> None:
    stamped = "5f1c-77aa || Sat Nov 21 03:44:59 2026[4]<stderr>:Segmentation fault (core dumped)\n"
    *first, last = CRASHES.splitlines(keepends=True)
    said = diagnosed(tmp_path, "".join([*first, stamped, last]))
    assert said.causes[0].ranks == [1, 3, 4]
