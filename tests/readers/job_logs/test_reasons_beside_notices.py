"""What a program or a library says is told rather than the notice that follows from it; and whose it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.readers.job_logs.cuda_numbers import in_words
from hangdoctor.readers.job_logs.failure_words import is_clean_end, judged
from hangdoctor.readers.job_logs.prefix import Said
from tests.support.read_logs import diagnosed, named, ranks_of

LOST = (
    "-" * 74 + "\nAn MPI communication peer process has unexpectedly disconnected.  This\n"
    "usually indicates a failure in the peer process (e.g., a crash or\n"
    "otherwise exiting without calling MPI_FINALIZE first).\n\n"
    "  Local host: lake-2\n  Local PID:  69\n  Peer host:  lake-0\n" + "-" * 74 + "\n"
)
MPIRUN = (
    "-" * 74 + "\nPrimary job  terminated normally, but 1 process returned\n"
    "a non-zero exit code. Per user-direction, the job has been aborted.\n" + "-" * 74 + "\n"
)
FIRST = (
    "mpiexec detected that one or more processes exited with non-zero status, thus causing\n"
    "the job to be terminated. The first process to do so was:\n\n"
    "  Process name: [[471,1],4]\n  Exit code:    1\n"
)


def test_the_programs_own_error_above_a_lost_host(tmp_path: Path) -> None:
    said = diagnosed(
        tmp_path, " > ERROR in basin 1: the gate is 4 m wide, at least 6 needed\n" + LOST
    )
    assert (
        "before others lost host lake-0" in said.summary and "the gate is 4 m wide" in said.summary
    )
    assert ranks_of(said) == []


def test_a_lost_host_alone_stays_one(tmp_path: Path) -> None:
    assert "lost the connection to host lake-0" in diagnosed(tmp_path, "filling\n" + LOST).summary
    early = " > ERROR in basin 1: the gate is 4 m wide\n" + "filling basin\n" * 80
    assert "lost the connection to host lake-0" in diagnosed(tmp_path, early + LOST).summary


def test_a_prompt_is_no_error() -> None:
    assert judged("> cannot open gate") is None and judged("$ ERRORS=1 ./lake") is None
    assert judged("> ERROR the gate is 4 m wide, which fails") is not None


def test_a_notice_on_an_exit_code_is_no_clean_end() -> None:
    assert not is_clean_end("Primary job  terminated normally, but 1 process returned")
    assert is_clean_end("lake 4 terminated normally")


def test_an_error_of_several_above_the_launchers_word_on_one(tmp_path: Path) -> None:
    text = "can't find gate sluice 1.2.3\n" * 4 + MPIRUN + FIRST
    said = diagnosed(tmp_path, text).summary
    assert "the log has 4 times 'can't find gate sluice 1.2.3'" in said
    assert "may be its reason" in said and "no error of its own" not in said


def test_the_head_of_a_table_is_no_error() -> None:
    assert judged("#       size      count    type   redop     time   algbw   busbw  error") is None
    assert judged("ERROR: basin 4 out of memory") is not None


def test_an_error_before_the_signal_that_ended_another_one(tmp_path: Path) -> None:
    text = "ERROR: LoadError: no water\nStacktrace:\n [1] main() at /w/lake.jl:11\n"
    signal = "\nsignal (15): Terminated\nin expression starting at /w/lake.jl:16\n"
    found = diagnosed(tmp_path, text + MPIRUN + signal)
    assert found.status == "failed" and "LoadError: no water" in found.summary
    assert diagnosed(tmp_path, signal).status == "unknown"


def test_mpi_init_that_failed_is_no_call_before_it(tmp_path: Path) -> None:
    last = "[n4:811] Local abort before MPI_INIT completed completed successfully, but am not able to aggregate\n"
    box = 'The application appears to have been direct launched using "srun",\nbut OMPI was not built with SLURM\'s PMI support and therefore cannot\nexecute.\n'
    failed = "*** An error occurred in MPI_Init_thread\n*** on a NULL communicator\n"
    assert "without Slurm's PMI" in diagnosed(tmp_path, box + failed + last).summary
    assert "MPI_Init failed" in diagnosed(tmp_path, failed + last).summary
    early = "*** The MPI_Comm_rank() function was called before MPI_INIT was invoked.\n"
    assert "called MPI before MPI_Init" in diagnosed(tmp_path, early + last).summary


def test_an_exception_without_words_is_one(tmp_path: Path) -> None:
    text = (
        "[rank6]: Traceback (most recent call last):\n"
        '[rank6]:   File "/w/lake.py", line 60, in main\n[rank6]:     assert not open_gate\n'
        "[rank6]: AssertionError\n"
        "[rank6]:[W104 10:00:00.1 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL.\n"
    )
    found = diagnosed(tmp_path, text)
    assert (
        named(found) == [("error", [6])] and "AssertionError in main (lake.py:60)" in found.summary
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("CUDA error: 2", "out of memory"),
        ("CUDA error 700 at gate.cu:4", "illegal memory access"),
        ("HIP error 719", "unspecified launch failure"),
        ("CUDA error: 2 devices", ""),
        ("Cuda failure 2 'out of memory'", ""),
        ("CUDA error: 12.1", ""),
        ("CUDA error: 999", ""),
    ],
)
def test_errors_of_cuda_by_their_number(line: str, words: str) -> None:
    told = in_words(Said(text=line)).text.removeprefix(line)
    assert words in told if words else not told


def test_a_number_alone_is_the_rank_of_the_only_end(tmp_path: Path) -> None:
    text = "CUDA error: 2\nsrun: error: n4: task 3: Exited with exit code 1\n"
    found = diagnosed(tmp_path, text)
    assert ranks_of(found) == [3] and "memory is full" in found.summary


def test_the_task_right_before_each_line(tmp_path: Path) -> None:
    text = "64:\n64:Program received signal SIGSEGV: Segmentation fault - invalid memory reference.\n64:\n"
    text += "64:Backtrace for this error:\n64:#0  0x2b94 in ???\n"
    assert ranks_of(diagnosed(tmp_path, text)) == [64]
    numbered = "".join(
        f"{n}:{line}\n" for n, line in enumerate(["lake"] * 9 + ["FATAL: no water here"])
    )
    assert ranks_of(diagnosed(tmp_path, numbered)) == []


def test_the_ranks_that_a_launcher_lists(tmp_path: Path) -> None:
    line = "ERROR 2031-01-04 10:00:00,649 launch_utils.py:545] ABORT!!! Out of all 4 trainers, the trainer process with rank=[1, 2, 3] was aborted. Please check its log.\n"
    found = diagnosed(tmp_path, line)
    assert "saw ranks 1-3 fail" in found.summary and found.status == "unknown"


def test_the_rank_above_the_call_that_failed(tmp_path: Path) -> None:
    text = "[cli_3]: aborting job:\nFatal error in MPI_Barrier: Internal MPI error!, error stack:\n"
    said = diagnosed(tmp_path, text).summary
    assert "rank 3" in said and "MPI_Barrier" in said
