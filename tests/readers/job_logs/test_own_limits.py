"""A rank that calls MPI_Abort since its own time limit has run out is a waiter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

ABORT = (
    "--------------------------------------------------------------------------\n"
    "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\n"
    "  Proc: [[34197,1],3]\n  Errorcode: 17\n"
)


@pytest.mark.parametrize(
    "words",
    [
        "halo exchange not complete after 10 s",
        "no answer of a neighbour in 10 s, giving up",
        "timed out: waited for 10 seconds",
    ],
)
def test_who_gave_up_waiting_is_not_the_cause(tmp_path: Path, words: str) -> None:
    said = diagnosed(tmp_path, f"[heat 3] FATAL {words}\n[heat 1] FATAL {words}\n{ABORT}")
    assert said.causes == [], said.summary
    assert (
        "rank 3 ended with exit code 17 after it had got on with nothing for 10 s" in said.summary
    )
    assert "time limit of the program" in said.summary


def test_another_reason_right_above_is_its_own(tmp_path: Path) -> None:
    said = diagnosed(tmp_path, f"[heat 3] FATAL temperature below zero after 10 sweeps\n{ABORT}")
    assert [ranks for _, ranks in named(said)] == [[3]], said.summary


def test_a_warning_of_another_rank_hides_no_reason(tmp_path: Path) -> None:
    warned = "[heat 1] ERROR no data from sensor 4 within 2 s, using last value\n"
    said = diagnosed(tmp_path, f"{warned}[heat 3] FATAL negative density in cell 12\n{ABORT}")
    assert [ranks for _, ranks in named(said)] == [[3]], said.summary


def test_the_deadline_of_a_step_is_a_wait_too(tmp_path: Path) -> None:
    """Rank 0 ends the job; rank 3 is a generation ahead of all others by what it printed."""
    lines = [
        f"20:26:5{n % 10} [{r}] generation {200 + n}: sending 24 values, tag {300 + n}"
        for n in range(13)
        for r in range(4)
    ]
    lines.append("20:26:59 [3] generation 213: sending 24 values, tag 313")
    lines.append("20:27:10 [0] ERROR generation 212 took more than 12 s, aborting the job")
    abort = ABORT.replace("rank 3", "rank 0").replace(",3]", ",0]")
    said = diagnosed(tmp_path, "\n".join(lines) + "\n" + abort)
    assert all(ranks != [0] for _, ranks in named(said)), said.summary
