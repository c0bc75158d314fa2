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
