"""Where a process was when it failed, by the stack that its runtime prints: by the formats of these runtimes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.diagnosis.wording.terms import line
from hangdoctor.readers.job_logs.native_frames import chosen, frame_of
from tests.support.read_logs import diagnosed, ranks_of

HEAD = "Image              PC                Routine            Line        Source"
SEGV = "forrtl: severe (174): SIGSEGV, segmentation fault occurred\n" + HEAD
STEPS = "".join(f" step {n} of the lake is done\n" for n in range(3))


def intel(image: str, name: str, line: str = "Unknown", file: str = "Unknown") -> str:
    return f"{image:<18} 00000000004A5B1C  {name:<18} {line:>8}  {file}"


@pytest.mark.parametrize(
    ("text", "name", "place"),
    [
        (intel("lake", "shore_mp_read", "231", "shore.F90"), "shore_mp_read", "shore.F90:231"),
        (intel("libmpi.so.40", "MPI_Comm_size"), "MPI_Comm_size", "libmpi.so.40"),
        ("#5  0x2b51e1a in __shore_MOD_read", "shore::read", ""),
        ("#3 0x2b51 in lake::step(int, double) at /src/lake.cpp:31", "lake::step", "lake.cpp:31"),
        (
            "[n7:811] [ 3] /opt/bin/lake(_ZN4lake4stepEi+0x1f3)[0x4a5b1c]",
            "lake::step",
            "lake",
        ),
        (
            " 4 0x000000000004a5b1 lake_read()  /src/lake.c:231",
            "lake_read",
            "lake.c:231",
        ),
        ("/opt/lib/libmpi.so.12(MPI_Bcast+0x417) [0x7f706ef83917]", "MPI_Bcast", "libmpi.so.12"),
    ],
)
def test_frames_of_runtimes(text: str, name: str, place: str) -> None:
    frame = frame_of(text)
    assert frame is not None and (frame.name, line(frame)) == (name, place)


@pytest.mark.parametrize("text", ["step 12 of 40", " 3 0.12 0.9 lake(s)", "# 4 in all", "[4] done"])
def test_other_lines_are_no_frames(text: str) -> None:
    assert frame_of(text) is None


def test_the_way_to_the_stack_is_no_place() -> None:
    rows = [
        intel("lake", "for__signal_handl"),
        intel("libc.so.6", "gsignal"),
        intel("lake", "stop_mp_fatal_err", "72", "stop.F90"),
        intel("lake", "shore_mp_read", "231", "shore.F90"),
        intel("lake", "MAIN__", "12", "lake.F90"),
    ]
    frames = [frame for frame in map(frame_of, rows) if frame is not None]
    assert str(chosen(frames)) == "shore_mp_read (shore.F90:231)"


def test_a_call_of_mpi_is_placed_where_the_program_made_it(tmp_path: Path) -> None:
    rows = [intel("libmpi.so.40", "PMPI_Bcast"), intel("lake", "shore_mp_send", "8", "shore.F90")]
    verdict = diagnosed(tmp_path, "\n".join([SEGV, *rows, ""]))
    assert "in PMPI_Bcast (shore.F90:8)" in verdict.summary


def test_libraries_alone_tell_who_called_which(tmp_path: Path) -> None:
    rows = [intel("libmpi.so.40", "MPI_Comm_size"), intel("libgrid_impi.so", "grid_init")]
    verdict = diagnosed(tmp_path, "\n".join([SEGV, *rows, ""]))
    assert "in MPI_Comm_size (libmpi.so.40, called by libgrid_impi.so)" in verdict.summary


def test_a_stack_of_gnu_fortran_below_its_task(tmp_path: Path) -> None:
    text = (
        "50:\n50: Program received signal SIGFPE: Floating-point exception - erroneous arithmetic operation.\n"
        "50:\n50: Backtrace for this error:\n50: #0  0x14eda3027d4f in ???\n50: #1  0x117edff in __shore_MOD_melt\n"
        "50:     at /src/lake/shore.F90:83\n50: #2  0x146a172 in main\n50:     at /src/lake/lake.F90:7\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert ranks_of(verdict) == [50] and "shore::melt (shore.F90:83)" in verdict.summary


def test_two_processes_in_two_places_have_none(tmp_path: Path) -> None:
    one = intel("lake", "shore_mp_read", "231", "shore.F90")
    other = intel("lake", "wind_mp_read", "9", "wind.F90")
    text = "\n".join([SEGV, one, *STEPS.splitlines(), *STEPS.splitlines(), SEGV, other, ""])
    assert "F90" not in diagnosed(tmp_path, text).summary


def test_a_stack_alone_below_a_line_with_a_rank(tmp_path: Path) -> None:
    row = intel("lake", "shore_mp_read", "231", "shore.F90")
    text = f"{STEPS}lake handler called by rank:         7\n{HEAD}\n{row}\n"
    verdict = diagnosed(tmp_path, text)
    assert ranks_of(verdict) == [7] and "shore_mp_read (shore.F90:231)" in verdict.summary


@pytest.mark.parametrize(
    "above", ["forrtl: error (78): process killed (SIGTERM)", "the stack of all, for the record"]
)
def test_a_stack_of_who_was_asked_to_end_or_of_nobody(tmp_path: Path, above: str) -> None:
    row = intel("lake", "shore_mp_read", "231", "shore.F90")
    assert diagnosed(tmp_path, f"{STEPS}{above}\n{HEAD}\n{row}\n").causes == []


def test_frames_above_a_handled_signal_are_the_handlers(tmp_path: Path) -> None:
    text = (
        "MPT ERROR: Rank 15(g:15) received signal SIGSEGV(11).\n\tProcess ID: 4711, Host: n23, Program: /opt/lake\n"
        "MPT: #1  0x00002aaf in lake_report (\nMPT:     at report.c:34\nMPT: #5  <signal handler called>\n"
        "MPT: #6  shore_melt_ ()\nMPT:     at /src/lake/shore.f:365\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert ranks_of(verdict) == [15] and verdict.causes[0].nodes == ["n23"]
    assert "shore_melt_ (shore.f:365)" in verdict.summary


def test_the_stack_above_a_call_of_mpi_abort(tmp_path: Path) -> None:
    row = intel("lake", "shore_mp_read", "231", "shore.F90")
    abort = "Abort(1) on node 9 (rank 9 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1) - process 9"
    verdict = diagnosed(tmp_path, f"{STEPS}{row}\n{abort}\n")
    assert ranks_of(verdict) == [9] and "shore_mp_read (shore.F90:231)" in verdict.summary


def test_a_stack_below_a_crash_is_of_the_process_of_its_line(tmp_path: Path) -> None:
    text = (
        "[n7:811:0:811] Caught signal 11 (Segmentation fault: address not mapped to object at address 0xb4)\n"
        "==== backtrace (tid:    811) ====\n 0 0x000000000003fdf0 __sigaction()  ???:0\n"
        " 1 0x00000000005569a9 shore_mp_melt_()  /src/lake/shore.F90:366\n 2 0x0000000000404000 MAIN__()  /src/lake/lake.F90:7\n"
    )
    verdict = diagnosed(tmp_path, text)
    assert (
        "Process 811 on n7" in verdict.summary
        and "shore_mp_melt_ (shore.F90:366)" in verdict.summary
    )
