"""A program's own reason comes before its end, and before what its end brought about."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, logs_of, named

RULER = "-" * 70 + "\n"
ABORT = (
    "MPI_ABORT was invoked on rank {rank} in communicator MPI_COMM_WORLD\nwith errorcode {code}.\n"
)
LEFT = (
    "mpirun has exited due to process rank 2 with PID 811 on\nnode n1 exiting improperly. "
    "There are two reasons this could occur:\n"
)
MORE = "[n1:800] {more} more processes have sent help message help-mpi-api.txt / mpi-abort\n"
CALLED = "application called MPI_Abort(MPI_COMM_WORLD, 5) - process {rank}\n"


def abort(rank: int, code: int = 1) -> str:
    return RULER + ABORT.format(rank=rank, code=code) + RULER


def left() -> str:
    return RULER + LEFT + RULER


# ------------------------------------------------------- who left, and who called MPI_Abort


@pytest.mark.parametrize("code", [0, 1])
def test_an_abort_comes_before_who_left(tmp_path: Path, code: int) -> None:
    found = diagnosed(tmp_path, abort(7, code) + "filling lake 8\n" + left())
    assert named(found) == [("dead", [7])], found.summary
    assert f"called MPI_Abort (exit code {code})" in found.summary
    assert "MPI_Finalize" not in found.summary


def test_who_left_above_an_abort_or_without_one(tmp_path: Path) -> None:
    for text in (left(), left() + abort(7)):
        found = diagnosed(tmp_path, text)
        assert named(found) == [("dead", [2])], found.summary
        assert "MPI_Finalize" in found.summary


def test_one_line_of_all_that_aborted(tmp_path: Path) -> None:
    lines = "Error: the gate of lake shore.gate was not opened, and failed!\n" * 4
    found = diagnosed(tmp_path, abort(0) + lines + left() + MORE.format(more=3))
    assert named(found) == [("error", [0])], found.summary
    assert "Rank 0 and 3 more failed alike, which was first does not show" in found.summary
    assert "4 lines say" in found.summary and "shore.gate" in found.summary


@pytest.mark.parametrize("lines", [1, 3, 9])
def test_other_lines_below_an_abort(tmp_path: Path, lines: int) -> None:
    words = "Error: the gate of lake shore.gate was not opened, and failed!\n" * lines
    found = diagnosed(tmp_path, abort(0) + words + MORE.format(more=5))
    assert "alike" not in found.summary, found.summary
    assert "which was first does not show" in found.summary


# --------------------------------------------------------------------- the reason above an end


def test_the_message_of_a_document_that_states_an_error(tmp_path: Path) -> None:
    text = (
        "--- !BUG\nmessage: |\n    For lake # 6,\n      the depth is found to be 0.\n"
        "src_file: lakes.F90\nsrc_line: 88\n...\n\n  Action : ask the authors.\n\n.Delivered 2 WARNINGs\n\n"
    )
    found = diagnosed(tmp_path, text + CALLED.format(rank=3))
    assert named(found) == [("error", [3])], found.summary
    assert "the depth is found to be 0" in found.summary
    assert "no error of its own" not in found.summary
    keys = text.replace("src_file: lakes.F90\n", "").replace(
        "!BUG\n", "!ERROR\nsrc_file: lakes.F90\n"
    )
    assert "depth is found to be 0" in diagnosed(tmp_path, keys + CALLED.format(rank=3)).summary
    other = text.replace("!BUG", "!COMMENT")
    found = diagnosed(tmp_path, other + CALLED.format(rank=3))
    assert named(found) == [("dead", [3])], found.summary


def test_an_assertion_and_the_rank_below_its_stack(tmp_path: Path) -> None:
    says = "Assertion failed in file ../src/lake/fill.c at line 88: lake->depth >= 0\n"
    stack = "".join(
        f"/opt/lake/lib/liblake.so.1(fill_lake+0x{n:x}) [0x7f44{n:08x}]\n" for n in range(18)
    )
    end = "MPICH ERROR [Rank 1] [job id 7.7] [Fri Nov 22 08:45:32 2024] [n8] - Abort(1): Internal error\n"
    found = diagnosed(tmp_path, says + stack + end)
    assert named(found) == [("error", [1])], found.summary
    assert "Assertion failed" in found.summary and "job.log:1)" in found.summary
    apart = diagnosed(tmp_path, says + "filling lake 8\n" * 18 + end)
    assert "as a line below it shows" not in apart.summary


def test_the_sentence_above_the_end_of_a_runtime(tmp_path: Path) -> None:
    says = "lake_die: lakeWait must not be called for an inner shore\n"
    end = "terminate called without an active exception\nFatal Python error: Aborted\n"
    found = diagnosed(tmp_path, "filling lake 8\n" + says + end)
    assert named(found) == [("error", [])], found.summary
    assert "lake_die" in found.summary
    for text in (
        says + "filling lake 8\n",
        "filling lake 8\n" + end,
        says + "filling lake 8\n" * 5 + end,
    ):
        assert "lake_die" not in diagnosed(tmp_path, text).summary


def test_the_box_of_a_known_program_above_calls_of_abort(tmp_path: Path) -> None:
    sign = " %" + "%" * 70 + "\n"
    box = f"{sign}     Error in routine fill_lake (3):\n     wrong depth of water\n{sign}\n     stopping ...\n"
    calls = CALLED.format(rank=19) + CALLED.format(rank=35)
    found = diagnosed(
        tmp_path, "LIB ERROR: Parameter 8 was incorrect on entry to LAKES .\n" + box + calls
    )
    assert named(found) == [("error", [19, 35])], found.summary
    assert "fill_lake" in found.summary and "wrong depth of water" in found.summary
    assert "they called MPI_Abort" in found.summary
    far = diagnosed(tmp_path, box + "filling lake 8\n" * 12 + calls)
    assert "fill_lake" not in far.summary


def test_a_ruler_is_never_quoted(tmp_path: Path) -> None:
    ruler = "[1]LAKE ERROR: [2]LAKE ERROR: " + "-" * 50 + "\n"
    says = "[1]LAKE ERROR: Caught signal number 11 SEGV: the lake is out of range\n"
    found = diagnosed(tmp_path, ruler + says + CALLED.format(rank=1))
    assert named(found) == [("error", [1])], found.summary
    assert "Caught signal number 11" in found.summary
    for sign in "=*#%":
        text = f"[1]LAKE ERROR: {sign * 40}\n" + CALLED.format(rank=1)
        assert "it printed" not in diagnosed(tmp_path, text).summary


# ------------------------------------------------------------------------------- who was first

CRASHED = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -11) local_rank: 13 (pid: 811) of binary: /lake/bin/python\n"
RING = "n1:{pid}:{pid} [3] graph/rings.cc:51 NCCL WARN Error : ring 1 does not contain rank 0\n"
FAILED = "python3: /lake/src/fill.cc:27: void fill(int): Assertion `0' failed.\n"


def test_an_assertion_below_a_crash_is_not_first(tmp_path: Path) -> None:
    task = "srun: error: n7: task 130: Exited with exit code 1\n"
    task += "slurmstepd: error: *** STEP 84.0 ON n1 CANCELLED AT 2024-04-23T15:45:48 ***\n"
    found = diagnosed(tmp_path, CRASHED + "2024-Apr-23 15:45:39.419290" + FAILED + task)
    assert [cause.kind for cause in found.causes] == ["dead"], found.summary
    assert "local rank 13 on n7 died first: killed by SIGSEGV" in found.summary
    alone = diagnosed(tmp_path, FAILED + task)
    assert "fill.cc:27" in alone.summary, alone.summary


def test_a_line_has_its_own_time(tmp_path: Path) -> None:
    text = "2024-04-23 15:42:02.960584: E lake.cc:570] the lake is full\n"
    path = tmp_path / "job.log"
    path.write_text(text + "2024-Apr-23 15:45:39.419290" + FAILED)
    facts = [fact for fact in logs_of(path).facts if "fill.cc" in fact.says]
    assert [int(fact.at % 3600) for fact in facts] == [45 * 60 + 39]
    assert not facts[0].inherited


def test_a_warning_of_the_process_that_crashed(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, RING.format(pid=811) + RING.format(pid=812) + CRASHED)
    assert [cause.kind for cause in found.causes] == ["dead"], found.summary
    assert "ring 1 does not contain rank 0 (job.log:1)" in found.summary
    other = diagnosed(tmp_path, RING.format(pid=812) + CRASHED)
    assert "ring 1" not in other.summary


def test_the_stack_of_an_abort_is_no_crash(tmp_path: Path) -> None:
    stack = "ATP Stack walkback for Rank {rank} starting:\n  main@lake.f90:18\n  stop_lake@lake.f90:99\n"
    head = "Application 8 is crashing. ATP analysis proceeding...\n" + CALLED.format(rank=3)
    found = diagnosed(tmp_path, head + stack.format(rank=3))
    assert named(found) == [("dead", [3])], found.summary
    assert "called MPI_Abort (exit code 5)" in found.summary and "crashed" not in found.summary
    assert "job.log:3" in found.causes[0].advice
    kill = "_pmiu_daemon(SIGCHLD): [NID 00768] [c7] [Mon Jun  5 15:41:51 2023] PE RANK 9 exit signal Killed\n"
    swept = diagnosed(tmp_path, CALLED.format(rank=3) + stack.format(rank=3) + kill)
    assert named(swept) == [("dead", [3])], swept.summary
    above = diagnosed(tmp_path, kill + CALLED.format(rank=3))
    assert named(above) == [("dead", [9])], above.summary
    other = diagnosed(tmp_path, stack.format(rank=3))
    assert "crashed" in other.summary, other.summary
