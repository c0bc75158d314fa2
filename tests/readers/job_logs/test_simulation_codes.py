"""Words with which codes of simulation end themselves, and the rank in them. By the formats of their strings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named


@pytest.mark.parametrize(
    ("text", "rank", "says"),
    [
        ("amrex::Abort::11::CFL is above 1 !!!\nSIGABRT\n", 11, "CFL is above 1"),
        (
            "amrex::Error::2::CUDA error 700 in file /s/Gpu.cpp line 40: an illegal memory access was encountered\n",
            2,
            "illegal memory access",
        ),
        ("See Backtrace.14 file for details\n", 14, "AMReX"),
        (
            "[4]PETSC ERROR: --------------------- Error Message ---------------------\n[4]PETSC ERROR: Argument out of range\n"
            "[4]PETSC ERROR: Index 9 beyond 8\n",
            4,
            "Argument out of range",
        ),
        (
            "[5] \n[5] \n[5] --> FOAM FATAL ERROR: \n[5] Maximum number of iterations exceeded\n",
            5,
            "FOAM FATAL ERROR",
        ),
        (
            "Program:     gmx mdrun, version 2023\nSource file: src/x.cpp (line 9)\nMPI rank:    3 (out of 8)\n\nFatal error:\nToo many warnings\n",
            3,
            "GROMACS",
        ),
        (
            "Code termination on task=48, function restart(), file src/io.c, line 20: file not found\n",
            48,
            "restart",
        ),
        ("task 7: endrun called with an error level of 818\n", 7, "818"),
        ("(rank:6 hostname:k2 pid:811):ARMCI DASSERT fail. armci.c:signal():315\n", 6, "DASSERT"),
        (
            '[31] ARMCI assert fail in gmr_create() [src/gmr.c:109]: "slices[me].base != NULL"\n',
            31,
            "gmr_create",
        ),
        ("FATAL from PE    12: ocean_temp: below limit\n", 12, "below limit"),
        (
            "20240102 101112.345 ERROR            PET03 Mesh.cpp:40 Internal error: bad value\n",
            3,
            "ESMF",
        ),
        ("     task #        21\n     from davcio : error #        10\n", 21, "Quantum ESPRESSO"),
        ("Stopping Program from Node:    3\n", 3, "SIESTA"),
        ("--- !ERROR\nsrc_file: m_x.F90\nsrc_line: 40\nmpi_rank: 9\nmessage: |\n", 9, "ABINIT"),
        (
            "p=2: *** Caught standard std::exception of type 'std::logic_error' :\n",
            2,
            "logic_error",
        ),
        ("Error detected, aborting MPI... proc           31\n", 31, "ended itself"),
        ("[3 - 7f31c0] {5}{runtime}: [error 67] LEGION ERROR: no such region\n", 3, "error 67"),
        (
            "BLACS ERROR 'Illegal grid (2 x 3), #procs=4'\nBLACS ERROR 'Illegal grid' from {-1,-1}, pnum=3, Contxt=-1, on line 98\n",
            3,
            "BLACS",
        ),
    ],
)
def test_the_rank_in_their_own_words(tmp_path: Path, text: str, rank: int, says: str) -> None:
    found = diagnosed(tmp_path, text)
    assert named(found) == [("error", [rank])] and says in found.summary, found.summary


def test_words_without_a_rank_name_nobody(tmp_path: Path) -> None:
    for text in (
        "--> FOAM FATAL IO ERROR: \ncannot open file\n",
        "     Error in routine davcio (10):\n     error while reading\n",
        "|     VERY BAD NEWS! internal error in subroutine IBZKPT:     |\n",
        "------------- Processor 5 Exiting: Called CmiAbort ------------\nReason: bad box\n",
    ):
        found = diagnosed(tmp_path, text)
        assert named(found) == [("error", [])], text
    assert "Processor 5" in found.summary, "of which a process may have several"


def test_who_was_asked_to_end_is_a_victim(tmp_path: Path) -> None:
    text = "[{0}]PETSC ERROR: Caught signal number 15 Terminate: Some process (or the batch system) has told this process to end\n"
    assert diagnosed(tmp_path, text.format(0) + text.format(2)).causes == []
    crash = "[1]PETSC ERROR: Caught signal number 11 SEGV: Segmentation Violation\n"
    assert named(diagnosed(tmp_path, text.format(0) + crash)) == [("dead", [1])]


def test_the_files_of_wrf_are_named_by_rank(tmp_path: Path) -> None:
    for rank in (0, 3):
        (tmp_path / f"rsl.error.{rank:04}").write_text(
            f"taskid: {rank} hostname: k4\n Ntasks in X 2\n"
        )
    with (tmp_path / "rsl.error.0003").open("a") as log:
        log.write("-------------- FATAL CALLED ---------------\n")
        log.write("FATAL CALLED FROM FILE:  <stdin>  LINE:     418\nSOIL TEXTURE IS MISSING\n")
    found = diagnosed(tmp_path, "")
    assert named(found) == [("error", [3])] and "418" in found.summary
