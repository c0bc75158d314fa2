"""The sentence in a program's own box is part of the verdict. By the formats of the programs' strings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

RULER = "-" * 60
CP2K = """ *******************************************************************************
 *   ___                                                                       *
 *  /   \\                                                                      *
 * [ABORT]                                                                     *
 *  \\___/    No basis of that name was found for kind Xx, which the input      *
 *    |      asks for.                                                         *
 *  O/|                                                                        *
 * /| |                                                                        *
 * / \\                                                      basis_types.F:611 *
 *******************************************************************************
"""
VASP = """|                                                                             |
|     EEEEEEE  RRRRRR   RRRRRR   OOOOOOO  RRRRRR      ###     ###     ###     |
|                                                                             |
|     The cell of the input has no volume, its second axis is                 |
|     degenerate                                                              |
|                                                                             |
|       ---->  I REFUSE TO CONTINUE WITH THIS SICK JOB ... BYE!!! <----       |
"""


@pytest.mark.parametrize(
    ("text", "ranks", "says"),
    [
        (
            "Program:     gmx mdrun, version 2024\nMPI rank:    3 (out of 8)\n\nFatal error:\nThe box of the lake is too\nsmall for it.\n\n"
            f"For more information see the site\n{RULER}\n",
            [3],
            "GROMACS stopped it: The box of the lake is too small for it.",
        ),
        (
            " %%%%%%%%%%%%\n     Error in routine  rdlake (12):\n      the shore is not closed\n %%%%%%%%%%%%\n",
            [],
            "in rdlake (error 12): the shore is not closed",
        ),
        (
            "     task #        21\n     from rdlake : error #        12\n     the shore is not closed\n %%%%%%%%%%%\n",
            [21],
            "the shore is not closed",
        ),
        (
            "[5] \n[5] --> FOAM FATAL ERROR: (openfoam-2106)\n[2] another line\n[5] Cells left the mesh at step 12\n[5] \n"
            "[5]     From void Foam::demo::step()\n",
            [5],
            "(FOAM FATAL ERROR): Cells left the mesh at step 12",
        ),
        (
            "[4]PETSC ERROR: Argument out of range\n[4]PETSC ERROR: Row 9 is beyond 8\n[4]PETSC ERROR: See the manual\n",
            [4],
            "Argument out of range: Row 9 is beyond 8",
        ),
        (
            "[4]PETSC ERROR: --------------------- Error Message ---------------------\n[4]PETSC ERROR: Lake is not assembled\n"
            "[4]PETSC ERROR: Call LakeFill() before it\n[4]PETSC ERROR: See the manual\n",
            [4],
            "PETSc stopped in an error: Lake is not assembled: Call LakeFill() before it",
        ),
        (
            "HDF5-DIAG: Error detected in HDF5 (1.12.0) MPI-process 3:\n  #000: H5F.c line 412 in H5Fopen(): unable to open file\n"
            "    major: File\n  #001: H5FD.c line 9 in H5FD_open(): the lake has no such file\n    major: Internal\n"
            "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n",
            [3],
            "a call of HDF5 failed: H5FD_open(): the lake has no such file",
        ),
        (
            "FATAL CALLED FROM FILE:  <stdin>  LINE:     418\nNO LAKE IS GIVEN\n-------------\n",
            [],
            "NO LAKE IS GIVEN",
        ),
        (VASP, [], "its second axis is degenerate"),
        (
            " VERY BAD NEWS! internal error in subroutine LAKES:\n the two shores cross  2\n\n",
            [],
            "the two shores cross 2",
        ),
        (CP2K, [], "for kind Xx, which the input asks for"),
        (
            "mpi_rank: 9\nmessage: |\n    The file of the lake is empty.\n...\n",
            [9],
            "The file of the lake is empty",
        ),
        (
            "------------- Processor 5 Exiting: Called CmiAbort ------------\nReason: FATAL ERROR: Bad box at step 12\n",
            [],
            "Bad box at step 12",
        ),
        (
            " Error message is no more lakes are left\n Driver_abort called by PE 7\n",
            [7],
            "no more lakes are left",
        ),
        (
            "lakes: the third one has no shore\nStopping Program from Node:    3\n",
            [3],
            "the third one has no shore",
        ),
        (
            "Current file:     /home/u/lake.F90\n        function: fill\n        line:     12\nThis file was compiled: -ta=tesla:cc70\n",
            [],
            "in lake.F90: function: fill line: 12",
        ),
    ],
)
def test_the_sentence_in_the_box(tmp_path: Path, text: str, ranks: list[int], says: str) -> None:
    found = diagnosed(tmp_path, text)
    assert named(found) == [("error", ranks)], found.summary
    assert says in found.summary


@pytest.mark.parametrize(
    "text",
    [
        "MPI rank:    3 (out of 8)\n",
        f"MPI rank:    3 (out of 8)\n\n{RULER}\nstep 12 of the lake\n",
        "[3] --> FOAM FATAL ERROR: \n[3] \n[3]     From void Foam::demo::step()\n",
        "[3] --> FOAM FATAL ERROR: \n[2] words of another one\n",
        f"{RULER}\nStopping Program from Node:    3\n",
    ],
)
def test_without_a_sentence_none_is_made(tmp_path: Path, text: str) -> None:
    found = diagnosed(tmp_path, text)
    assert named(found) == [("error", [3])], found.summary
    assert "{" not in found.summary and "another one" not in found.summary
    assert found.summary.rstrip(".").endswith(("stopped it", "(FOAM FATAL ERROR)", "itself"))


def test_as_many_boxes_as_tasks_that_exited(tmp_path: Path) -> None:
    box = "Current file:     /home/u/lake.F90\n        function: fill\n        line:     12\n"
    ends = "srun: error: n1: task 1: Exited with exit code 1\nsrun: error: n1: task 0: Exited with exit code 1\n"
    assert named(diagnosed(tmp_path, 2 * box + ends)) == [("error", [0, 1])]
    assert named(diagnosed(tmp_path, 3 * box + ends)) == [("error", [])], "whose they are is open"


def test_a_box_of_who_was_asked_to_end(tmp_path: Path) -> None:
    text = (
        "[4]PETSC ERROR: Caught signal number 15 Terminate: Some process has told this process to end\n"
        "[4]PETSC ERROR: --------------------- Error Message ---------------------\n[4]PETSC ERROR: Signal received\n"
        "[4]PETSC ERROR: See the manual\n"
    )
    assert diagnosed(tmp_path, text).causes == []


def test_a_file_that_was_looked_for(tmp_path: Path) -> None:
    """HDF5 prints its stack for whoever only asks whether a file is there."""
    text = "HDF5-DIAG: Error detected in HDF5 (1.12.0) MPI-process 3:\n  #000: H5F.c line 412 in H5Fopen(): unable to open file\n"
    assert diagnosed(tmp_path, text + "step 4 of the lake\n").causes == []


def test_the_error_by_its_name_above_a_list(tmp_path: Path) -> None:
    text = (
        "lake.cpp: hipErrorLakeIsDry: Unable to find water in any lake\n  lake-a - [Not Found]\n  lake-b - [Unsupported]\n"
        "srun: error: n1: task 0: Aborted\n"
    )
    found = diagnosed(tmp_path, text)
    assert "hipErrorLakeIsDry" in found.summary and "Unsupported" not in found.summary
