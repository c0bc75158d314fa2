"""A network card that refuses memory of its own process accuses neither the link nor the peer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

NCCL = "fen3:811:840 [2] NCCL INFO ncclCommInitRank comm 0x5 rank 2 nranks 8 cudaDev 2 busId 1 - Init COMPLETE\n"
COMPLETION = "fen3:811:902 [2] transport/net_ib.cc:1300 NCCL WARN NET/IB : Got completion from peer 10.4.0.9<4711> with {} opcode 1 len 2 vendor err 81 (Send)\n"
DRIVER = "mlx5: fen3: got completion with error:\n00000000 00000000 00000000 00000000\n"
ABORT = (
    "MPICH ERROR [Rank 6] [job id 9.0] [Mon Mar 4 10:00:00 2024] [fen3] - Abort(1) (rank 6 in comm 0): "
    "Fatal error in PMPI_Alltoall: Other MPI error, error stack:\n"
    "PMPI_Alltoall(301)..............: MPI_Alltoall(sbuf=0x1, comm=MPI_COMM_WORLD) failed\n"
    "MPIDI_OFI_handle_cq_error(1059): OFI poll failed (ofi_events.c:1061:MPIDI_OFI_handle_cq_error:Input/output error - {})\n"
)


@pytest.mark.parametrize(
    "status", ["error 4,", "status=4", "status=2", "status=IBV_WC_LOC_PROT_ERR(4)"]
)
def test_a_local_status_is_of_its_speaker(tmp_path: Path, status: str) -> None:
    verdict = diagnosed(tmp_path, NCCL + COMPLETION.format(status))
    assert named(verdict) == [("error", [2])] and verdict.causes[0].nodes == ["fen3"]
    assert "memory of its own process" in verdict.summary and "10.4.0.9" not in verdict.summary


@pytest.mark.parametrize("status", ["status=11", "error 10,", "status=5"])
def test_another_status_lies_between_two_ends(tmp_path: Path, status: str) -> None:
    verdict = diagnosed(tmp_path, NCCL + COMPLETION.format(status))
    assert named(verdict) == [("in_communication", [])]
    assert verdict.causes[0].nodes == ["10.4.0.9", "fen3"]  # never the peer alone


def test_the_drivers_line_gives_way_to_the_stack_that_names_the_rank(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, DRIVER + ABORT.format("local protection error"))
    assert named(verdict) == [("error", [6])] and verdict.causes[0].nodes == ["fen3"]
    assert "in PMPI_Alltoall (local protection error)" in verdict.summary


def test_an_error_of_the_transport_names_neither_end(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, DRIVER + ABORT.format("transport retry counter exceeded"))
    assert all(cause.ranks == [] for cause in verdict.causes)
