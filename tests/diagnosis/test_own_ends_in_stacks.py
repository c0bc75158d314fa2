"""Stacks of a process at its own call of MPI_Abort or abort(): an end, and no wait; also beside a job's log."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.readers.offline import read

OWN = (
    "#{0}  0x00007ffff2 in Grid<float>::at (this=0x5555aa01c0, cell=4294967294)\n    at src/Grid.h:71\n"
    "#{1}  0x00007ffff3 in Relax::prepare (this=0x5555aa0210) at src/Relax.C:18\n"
    "#{2}  0x0000555555 in main (argc=2, argv=0x7ffffc258) at src/main.C:9\n"
)
BY_MPI = "#0  0x00007fffe1 in PMPI_Abort () from /opt/mpi/lib/libmpi.so.12\n" + OWN.format(1, 2, 3)
BY_C = (
    "#0  0x00007fffe1 in raise () from /lib64/libc.so.6\n"
    "#1  0x00007fffe2 in abort () from /lib64/libc.so.6\n"
    "#2  0x00007fffe3 in __gnu_cxx::__verbose_terminate_handler () from /lib64/libstdc++.so.6\n"
    "#3  0x00007fffe4 in std::terminate () from /lib64/libstdc++.so.6\n" + OWN.format(4, 5, 6)
)
WATCHDOG = (
    "#0  0x00007fffe1 in raise () from /lib64/libc.so.6\n"
    "#1  0x00007fffe2 in abort () from /lib64/libc.so.6\n"
    "#2  0x00007fffe3 in c10d::ProcessGroupNCCL::ncclCommWatchdog () from /o/libtorch_cuda.so\n"
    "#3  0x00007fffe4 in clone () from /lib64/libc.so.6\n"
)
WAITS = (
    "#0  0x00007fffe1 in poll () from /lib64/libc.so.6\n"
    "#1  0x00007fffe2 in PMPI_Recv () from /opt/mpi/lib/libmpi.so.12\n"
    "#2  0x00007ffff3 in Relax::swap (this=0x5555aa0210) at src/Relax.C:44\n"
    "#3  0x0000555555 in main (argc=2, argv=0x7ffffc258) at src/main.C:9\n"
)
SRUN = "srun: error: c17: task 5: {} (core dumped)\nsrun: Terminating job step 88.0\n"
CRASHED = SRUN.format("Segmentation fault")


def judged(folder: Path, **texts: str) -> Diagnosis:
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    return diagnose(read([folder / f"{name}.txt" for name in texts]))


@pytest.mark.parametrize(("text", "call"), [(BY_MPI, "MPI_Abort"), (BY_C, "abort()")])
def test_what_called_it_failed(tmp_path: Path, text: str, call: str) -> None:
    said = judged(tmp_path, bt=text)
    [cause] = said.causes
    assert (said.status, cause.kind, cause.ranks) == ("failed", "error", [])
    assert f"{call} was called out of Grid::at (Grid.h:71) with cell=4294967294" in said.summary
    assert "-2 without its sign" in said.summary


def test_a_stack_that_was_printed_twice_is_one(tmp_path: Path) -> None:
    twice = f"{BY_MPI}(gdb) bt &> trace\nA syntax error in expression, near `> trace'.\n(gdb) bt\n{BY_MPI}"
    assert judged(tmp_path, bt=twice).summary == judged(tmp_path, bt=BY_MPI).summary


def test_two_that_wait_alike_are_two(tmp_path: Path) -> None:
    """Their objects lie elsewhere: two processes stand in one function."""
    said = judged(tmp_path, bt=f"{WAITS}\n{WAITS.replace('0x5555aa0210', '0x5555bb0210')}")
    assert "stack 1 of bt.txt and stack 2 of bt.txt wait in MPI_Recv" in said.summary


def test_a_wait_and_a_watchdogs_abort_are_no_such_end(tmp_path: Path) -> None:
    assert judged(tmp_path, bt=WAITS).status == "unknown"
    said = judged(tmp_path, bt=WATCHDOG)
    assert said.status == "unknown" and said.causes == []


def test_other_processes_only_wait_for_it(tmp_path: Path) -> None:
    said = judged(tmp_path, one=BY_MPI, two=WAITS)
    assert said.status == "failed" and "process of one.txt ended itself" in said.summary


def test_those_that_ended_in_several_places_are_listed(tmp_path: Path) -> None:
    said = judged(tmp_path, one=BY_MPI, two=BY_MPI.replace("Grid", "Mesh"))
    assert said.status == "unknown" and "called MPI_Abort in Grid::at" in said.summary


@pytest.mark.parametrize(
    "head",
    [
        "#0  0x0000 in ?? ()\n#1  <signal handler called>\n",
        "Program terminated with signal 11, Segmentation fault.\n",
        "Program terminated with signal SIGSEGV, Segmentation fault.\n",
        "(gdb) bt\n",
    ],
)
def test_the_stack_of_a_crash_beside_its_log(tmp_path: Path, head: str) -> None:
    first = 2 if "handler" in head else 0
    stack = head + OWN.format(first, first + 1, first + 2)
    [cause] = judged(tmp_path, job=CRASHED, gdb=stack).causes
    assert (cause.kind, cause.ranks, cause.nodes) == ("dead", [5], ["c17"])
    assert "the stack given beside the log is in Grid::at (Grid.h:71)" in cause.summary
    assert cause.where.frame == "Grid::at (src/Grid.h:71)"
    assert any(e.source == "stack" and "Relax::prepare" in e.says for e in cause.evidence)
    assert "coredumpctl" not in cause.advice and "python" not in cause.advice


def test_a_stack_of_a_wait_is_not_that_of_the_crash(tmp_path: Path) -> None:
    [cause] = judged(tmp_path, job=CRASHED, gdb=WAITS).causes
    assert "given beside the log" not in cause.summary and "coredumpctl" in cause.advice


def test_a_stack_of_another_signal_is_not_that_of_the_crash(tmp_path: Path) -> None:
    stack = "Program terminated with signal SIGFPE, Arithmetic exception.\n" + OWN.format(0, 1, 2)
    [cause] = judged(tmp_path, job=CRASHED, gdb=stack).causes
    assert "given beside the log" not in cause.summary


def test_of_two_stacks_none_is_chosen(tmp_path: Path) -> None:
    one = "(gdb) bt\n" + OWN.format(0, 1, 2)
    [cause] = judged(tmp_path, job=CRASHED, a=one, b=one.replace("Grid", "Mesh")).causes
    assert "given beside the log" not in cause.summary


def test_without_a_stack_python_is_only_one_of_two_ways(tmp_path: Path) -> None:
    [cause] = judged(tmp_path, job=CRASHED).causes
    assert "gdb on its core file" in cause.advice and "of a Python program" in cause.advice


def test_files_of_ranks_name_them(tmp_path: Path) -> None:
    [cause] = judged(tmp_path, rank2=BY_MPI, rank7=BY_MPI, rank9=WAITS).causes
    assert (cause.kind, cause.ranks) == ("error", [2, 7])
    assert cause.summary.startswith(
        "Rank 2 and rank 7 ended themselves: MPI_Abort was called out of"
    )


def test_the_stack_of_the_rank_that_crashed(tmp_path: Path) -> None:
    stack = "(gdb) bt\n" + OWN.format(0, 1, 2)
    [cause] = judged(tmp_path, job=CRASHED, rank5=stack).causes
    assert cause.ranks == [5] and "given beside the log is in Grid::at" in cause.summary
    [cause] = judged(tmp_path, job=CRASHED, rank5="", rank4=stack).causes
    assert cause.ranks == [5] and "given beside the log" not in cause.summary
