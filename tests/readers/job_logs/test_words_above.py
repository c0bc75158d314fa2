"""What a program prints right above its own end is the cause, in whatever words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, logs_of, named

RULER = "-" * 70 + "\n"
ABORT = "MPI_ABORT was invoked on rank {rank} in communicator MPI_COMM_WORLD\nwith errorcode 1.\n"
LEFT = (
    "mpirun has exited due to process rank 3 with PID 811 on node n1 exiting without calling "
    '"finalize". This may have caused other processes to be terminated.\n'
)


def above(rank: int, text: str) -> str:
    return text + RULER + ABORT.format(rank=rank) + RULER


@pytest.mark.parametrize(
    "text",
    [
        "[3]\n[3] keyword SHORE is undefined in dictionary 'lakes'\n[3]\n[3]     From function fill()\n[3]\nparallel run exiting\n",
        "[ERROR] [2024.11.26 16:13:3 lakes.cpp:134 @ Lakes::init()] :\nWith rivers, lakes must be initialized before the sea. Calling MPI_Abort().\n",
        "The number of shores is not divisible by the number of lakes.\n",
        "fill failed with the following error:\n\tError 2 lakeErrorNoWater: out of water" + RULER,
        "rank 3: the depth has become negative in lake 8\nstopping ...\n",
    ],
)
def test_the_sentence_above_an_abort(tmp_path: Path, text: str) -> None:
    found = diagnosed(tmp_path, above(3, text))
    assert named(found) == [("error", [3])], found.summary
    assert "it printed" in found.summary
    assert len(text) > 80 or "then it called MPI_Abort" in found.summary
    assert "no error of its own" not in found.summary
    assert [event.role for event in found.chain] == ["cause", "end"]


@pytest.mark.parametrize(
    "text",
    [
        "step 12 of 40\nfilling lake 8\n",
        "[2] keyword SHORE is undefined in dictionary 'lakes'\n",  # another one's
        "WARNING: the second shore is not closed\n",
        "parallel run exiting\nstopping ...\n",
        "[3] lost the connection to the peer on n7: it is not reachable\n",
        "the second shore is not closed\n" + "filling lake 8\n" * 12,
    ],
)
def test_other_lines_above_an_abort(tmp_path: Path, text: str) -> None:
    found = diagnosed(tmp_path, above(3, text))
    assert named(found) == [("dead", [3])], found.summary
    assert "it called MPI_Abort" in found.summary and "it printed" not in found.summary


def test_such_words_alone_are_no_failure(tmp_path: Path) -> None:
    text = "the second shore is not closed, so that water must be pumped\n" * 3
    path = tmp_path / "job.log"
    path.write_text("filling lake 8\n" + text + "filling lake 9\n")
    assert logs_of(path).unread == []


def test_leaving_without_finalize_after_an_abort(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, above(3, "[3] keyword SHORE is undefined here\n") + LEFT)
    assert named(found) == [("error", [3])]
    assert "SHORE" in found.summary and "MPI_Finalize" not in found.summary
    alone = diagnosed(tmp_path, LEFT)
    assert named(alone) == [("dead", [3])] and "MPI_Finalize" in alone.summary


def test_an_error_that_is_known_stays_the_cause(tmp_path: Path) -> None:
    text = "ERROR on proc 3: Lost atoms: original 8 current 7 (thermo.cpp:12)\nthe second shore is not closed\n"
    found = diagnosed(tmp_path, above(3, text))
    assert named(found) == [("error", [3])] and "LAMMPS" in found.summary


SENT = (
    "MPICH ERROR [Rank 3] [job id 7.0] [Tue Dec 12 17:52:24 2023] [n1] - Abort(404) (rank 3 in comm 0): "
    "Fatal error in PMPI_Send: Other MPI error, error stack:\n"
    "PMPI_Send(163)........: MPI_Send(buf=0x28, count=1, MPI_INTEGER, dest=0, tag=1, comm=0x84000001) failed\n"
    "MPID_Send(499)........:\n"
)
SRUN = (
    "srun: error: n1: task 3: Exited with exit code 255\nsrun: Terminating StepId=7.0\n"
    "slurmstepd: error: *** STEP 7.0 ON n0 CANCELLED AT 2023-12-12T17:52:24 ***\nsrun: error: n0: tasks 0-2: Terminated\n"
)


def test_a_call_that_failed_before_the_exit(tmp_path: Path) -> None:
    """A reason that no other process can be behind is the cause; another one is not its own."""
    own = "MPIDI_OFI_send(34): OFI tagged inject failed (ofi_send.h:34:send:Invalid argument)\n"
    found = diagnosed(tmp_path, SENT + own + SRUN)
    assert named(found) == [("error", [3])], found.summary
    assert "its call of PMPI_Send failed: OFI tagged inject failed" in found.summary
    assert "no error of its own" not in found.summary
    other = (
        "MPIDI_OFI_send(34): OFI poll failed (ofi_events.h:34:send:Input/output error - CANCELED)\n"
    )
    found = diagnosed(tmp_path, SENT + other + SRUN)
    assert ("error", [3]) not in named(found) and "no error of its own" not in found.summary


def test_an_exit_without_a_word(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, SRUN)
    assert named(found) == [("dead", [3])] and "no error of its own is in the log" in found.summary


@pytest.mark.parametrize(
    ("last", "says"),
    [
        ("lake_fill_start(302): fail failed\n", "lake_fill_start: fail failed"),
        ("lake_fill_start(302): could not open the shore\n", "could not open the shore"),
    ],
)
def test_the_function_where_the_reason_says_nothing(tmp_path: Path, last: str, says: str) -> None:
    head = (
        "Fatal error in PMPI_Bcast: Other MPI error, error stack:\nMPIR_Bcast(18)..: fail failed\n"
    )
    found = diagnosed(tmp_path, head + last)
    assert says in found.summary and "the end of the stack of PMPI_Bcast" in found.summary
    other = diagnosed(tmp_path, head + "MPIDI_CH3I_Progress(176): progress engine failure\n")
    assert other.causes == [], "which another process' end brings about, too"


def test_above_the_line_of_a_launcher(tmp_path: Path) -> None:
    words = "The number of shores must be that of the lakes.\n"
    srun = "srun: error: n1: task 3: Exited with exit code 2\n"
    hydra = (
        "=" * 60 + "\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
        "=   RANK 3 PID 811 RUNNING AT n1\n=   EXIT CODE: 2\n" + "=" * 60 + "\n"
    )
    mpirun = (
        RULER + "Primary job  terminated normally, but 1 process returned\n"
        "a non-zero exit code. Per user-direction, the job has been aborted.\n"
        + RULER
        + "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
        "the job to be terminated. The first process to do so was:\n\n"
        "  Process name: [[4711,1],3]\n  Exit code:    2\n" + RULER
    )
    for end in (srun, hydra, mpirun):
        found = diagnosed(tmp_path, "filling lake 8\n" + words + end)
        assert named(found) == [("dead", [3])], "who printed it does not show"
        assert "'The number of shores must be" in found.summary, found.summary
        assert "may be its reason" in found.summary
        own = diagnosed(tmp_path, f"rank 3: {words}{end}")
        assert named(own) == [("error", [3])] and "it printed" in own.summary, own.summary
        far = diagnosed(tmp_path, words + "filling lake 8\n" * 12 + end)
        assert "shores" not in far.summary, far.summary
        killed = end.replace("Exited with exit code 2", "Killed").replace("CODE: 2", "CODE: 9")
        killed = killed.replace("Exit code:    2", "Exit code:    137")
        assert "it printed" not in diagnosed(tmp_path, words + killed).summary
