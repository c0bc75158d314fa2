"""Reasons that stand beside an end in words which by themselves speak of no failure: by place, key or number."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, ranks_of

ABORT = "application called MPI_Abort(MPI_COMM_WORLD, -1) - process 1\n"
RULER = "-" * 74


def test_a_place_in_the_source_right_above_an_abort(tmp_path: Path) -> None:
    text = f"[0000] shores are read\n[0001] plan.c:plan_unlock():106: Unlocking shore is NULL.\n{ABORT}"
    verdict = diagnosed(tmp_path, text)
    assert ranks_of(verdict) == [1] and "Unlocking shore is NULL" in verdict.summary


@pytest.mark.parametrize(
    "above",
    [
        "[0000] plan.c:plan_unlock():106: Unlocking shore is NULL.",
        "[0001] the lake goes on with step 7",
        "[0001] plan.c:106: WARNING the shore is flat",
    ],
)
def test_other_lines_above_an_abort_are_no_reason(tmp_path: Path, above: str) -> None:
    verdict = diagnosed(tmp_path, f"[0000] shores are read\n{above}\n{ABORT}")
    assert ranks_of(verdict) == [1] and "no error of its own" in verdict.summary


def test_a_limit_of_the_process_at_the_end_of_its_stack(tmp_path: Path) -> None:
    text = (
        "Fatal error in PMPI_Comm_dup: Other MPI error, error stack:\n"
        "PMPI_Comm_dup(177)..................: MPI_Comm_dup(comm=0xc40053e9, new_comm=0x7ffd) failed\n"
        "MPIR_Get_contextid_sparse_group(614): Too many communicators (0/2048 free on this process; ignore_id=0)\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert verdict.causes[0].kind == "error" and "Too many communicators" in verdict.summary


@pytest.mark.parametrize(
    ("name", "rank"), [("log.lake.0056.err", 56), ("PET07.ESMF_LogFile", 7), ("log.2024.err", -1)]
)
def test_files_of_models_that_are_named_by_task(tmp_path: Path, name: str, rank: int) -> None:
    text = (
        "lake begins\n\nCRITICAL ERROR: the shore is not closed, the state is invalid\nlake ends\n"
    )
    verdict = diagnosed(tmp_path, {name: text})
    assert ranks_of(verdict) == ([rank] if rank >= 0 else [])


def test_host_and_reason_of_a_framed_message(tmp_path: Path) -> None:
    text = (
        f"{RULER}\nOpen MPI failed an OFI Libfabric library call (fi_domain).  This is highly\nunusual; your job may abort\n\n"
        f"  Local host: n51\n  Location: /src/mtl_lake.c:999\n  Error: Function not implemented (38)\n{RULER}\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert "on n51" in verdict.summary and "Function not implemented" in verdict.summary


def test_what_the_kernel_answered_to_several_processes(tmp_path: Path) -> None:
    text = "".join(
        f"[n7:{pid}:0:{pid}]      cma_ep.c:88   process_vm_readv(pid=9 {{0x1,61}}-->{{0x2,61}}) returned -1: Bad address\n"
        for pid in (811, 812)
    )
    verdict = diagnosed(tmp_path, text)
    assert "2 processes on n7" in verdict.summary and "Bad address" in verdict.summary


def test_a_processor_of_a_partition(tmp_path: Path) -> None:
    text = "------- Partition 0 Processor 3 Exiting: Called CmiAbort ------\nReason: the shore is not closed\n"
    verdict = diagnosed(tmp_path, text)
    assert "Processor 3" in verdict.summary and "the shore is not closed" in verdict.summary
