"""A port that another process has: its number, and the tasks that srun says have failed by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

TAKEN = "RuntimeError: The server socket has failed to listen on any local network address. "
BOUND = "The server socket has failed to bind to [::]:29571 (errno: 98 - Address already in use). The server socket has failed to bind to 0.0.0.0:29571 (errno: 98 - Address already in use)."
LISTENS = "port: 29571, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use"
BEGIN = 'Traceback (most recent call last):\n  File "{}", line 3, in main\n'
TORCHRUN = BEGIN.format("/v/lib/python3.11/site-packages/torch/distributed/run.py")
RANK = BEGIN.format("/job/train.py")
SRUN = "srun: error: n4: task 3: Exited with exit code 1\nsrun: error: n3: task 0: Exited with exit code 1\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"


@pytest.mark.parametrize(
    "says",
    [
        TAKEN + BOUND,
        TAKEN + LISTENS,
        TAKEN.rstrip() + LISTENS,
        "OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 29571): address already in use",
        "RuntimeError: Failed to bind to address 10.0.0.4:29571: Address already in use",
    ],
)
def test_the_number_of_the_port(tmp_path: Path, says: str) -> None:
    found = diagnosed(tmp_path, f"10-03 18:37:01.832: starting\n{RANK}{says}\n")
    assert found.status == "failed", found.summary
    assert "port 29571 is taken by another process" in found.summary


@pytest.mark.parametrize("says", [TAKEN + "useIpv6: 0, code: -48, name: EADDRINUSE", TAKEN])
def test_a_port_without_its_number(tmp_path: Path, says: str) -> None:
    found = diagnosed(tmp_path, f"{RANK}{says}\n")
    assert "the rendezvous port is taken by another process" in found.summary


def test_the_tasks_that_started_torchrun(tmp_path: Path) -> None:
    """Two of them, with one error each: those are no ranks."""
    found = diagnosed(tmp_path, (TORCHRUN + TAKEN + BOUND + "\n") * 2 + SRUN)
    assert named(found) == [("error", [])], found.summary
    assert found.summary.startswith("Tasks 0,3 on n[3-4] failed first"), found.summary
    assert found.causes[0].nodes == ["n3", "n4"]


def test_tasks_that_are_ranks(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, (RANK + TAKEN + BOUND + "\n") * 2 + SRUN)
    assert named(found) == [("error", [0, 3])], found.summary


@pytest.mark.parametrize("errors", [1, 3])
def test_another_number_of_errors_than_of_tasks_names_none(tmp_path: Path, errors: int) -> None:
    """Some of the tasks then failed without a word, or for another reason."""
    found = diagnosed(tmp_path, (TORCHRUN + TAKEN + BOUND + "\n") * errors + SRUN)
    assert found.summary.startswith("Torchrun's agent, which runs no rank,"), found.summary
    assert (found.causes[0].ranks, found.causes[0].nodes) == ([], [])


def test_beside_the_word_of_one_that_lost_another_none_is_named(tmp_path: Path) -> None:
    lost = RANK + "RuntimeError: [pair.cc:598] Connection closed by peer [10.0.0.9]:12717\n"
    found = diagnosed(tmp_path, (RANK + TAKEN + BOUND + "\n") * 2 + lost + SRUN)
    assert named(found) == [("error", [])], found.summary
