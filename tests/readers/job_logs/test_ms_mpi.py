"""Microsoft MPI's list of messages, and Realm's word on a signal: who ended by itself, and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.model.log_facts import Ended
from tests.support.read_logs import diagnosed, logs_of, named

LIST = "job aborted:\n[ranks] message\n\n[0,2-3] terminated\n\n[1] {message}\n\n---- error analysis -----\n\n[1] on SHORE-7\n{end}\n\n---- error analysis -----\n"
CRASHED = "./lake ended prematurely and may have crashed. exit code {code}"


@pytest.mark.parametrize(
    ("code", "says"),
    [("0xc0000005", "SIGSEGV"), ("0xc0000409", "SIGABRT"), ("7", "exit code 7")],
)
def test_the_rank_that_crashed(tmp_path: Path, code: str, says: str) -> None:
    text = LIST.format(
        message="process exited without calling finalize", end=CRASHED.format(code=code)
    )
    found = diagnosed(tmp_path, text)
    assert named(found) == [("dead", [1])] and says in found.summary and "SHORE-7" in found.summary


def test_the_rank_that_aborted(tmp_path: Path) -> None:
    message = "application aborted\naborting MPI_COMM_WORLD (comm=0x44000000), error 5, comm rank 1"
    text = "The number of lakes is not divisible by 4.\n" + LIST.format(
        message=message, end="./lake aborted the job. abort code 5"
    )
    found = diagnosed(tmp_path, text)
    assert named(found) == [("error", [1])]
    assert "not divisible by 4" in found.summary


def test_who_was_stopped_by_hand_or_by_mpiexec_is_no_crash(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(
        LIST.format(message="process exited", end=CRASHED.format(code="0xc000013a"))
        + "[2] on SHORE-7\n"
    )
    assert not [fact for fact in logs_of(log).facts if isinstance(fact, Ended)]


def test_rows_in_brackets_elsewhere_are_no_list(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "[1] on SHORE-7\n" + CRASHED.format(code="0xc0000005") + "\n")
    assert named(found) == [("error", [])]


def test_realm_names_the_node_that_a_signal_came_to(tmp_path: Path) -> None:
    text = (
        "lake: /w/sea.cc:160: void wave(int): Assertion `depth == 0' failed.\n"
        "Signal 6 received by node 5, process 109 (thread 20ab) - obtaining backtrace\n"
    )
    found = diagnosed(tmp_path, text)
    assert named(found) == [("error", [5])] and "sea.cc:160" in found.summary
