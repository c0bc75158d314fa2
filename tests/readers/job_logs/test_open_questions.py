"""Questions on standard input that are the last output of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

ENDED = (
    "W1123 19:36:15.740000 23432 torch/distributed/elastic/agent/server/api.py:753] "
    "Received 15 death signal, shutting down workers\n"
    "W1123 19:36:15.741000 23432 torch/distributed/elastic/multiprocessing/api.py:1028] "
    "Sending process 23622 closing signal SIGTERM\n"
)
STEPS = "step 10 loss 2.1\nstep 20 loss 2.0\n"


@pytest.mark.parametrize(
    "question",
    [
        "out/best belongs to another run, replace it? [y/N] ",
        "Overwrite (y/n)? ",
        "Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
        "Press Enter to continue",
        "wandb: Enter your choice: ",
        "Password for 'https://me@git.example': ",
    ],
)
def test_a_question_without_an_answer_is_what_the_others_wait_for(
    tmp_path: Path, question: str
) -> None:
    for text in (STEPS + question + ENDED, STEPS + question, STEPS + question + "\n" + ENDED):
        found = diagnosed(tmp_path, text)
        assert named(found) == [("not_entered", [])], found.summary
        assert "waiting for an answer on standard input" in found.summary
        assert "(job.log:3)" in found.summary and found.status == "hang"


def test_the_rank_is_named_where_its_prefix_says_it(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, STEPS + "[rank2]: replace it? [y/N] " + ENDED)
    assert named(found) == [("not_entered", [2])], found.summary


@pytest.mark.parametrize(
    "after",
    [
        "replace it? [y/N] y\nstep 30 loss 1.9\n" + ENDED,
        "replace it? [y/N] step 30 loss 1.9\n" + ENDED,
        "replace it? [y/N] \nstep 30 loss 1.9\n" + ENDED,
        "replace it? [y/N] \nfolder replaced\n" + ENDED,
        "replace it? [y/N] keeping the old one\n" + ENDED,
    ],
)
def test_a_job_that_went_on_after_its_question_does_not_wait_for_it(
    tmp_path: Path, after: str
) -> None:
    found = diagnosed(tmp_path, STEPS + after)
    assert "standard input" not in found.summary, found.summary


def test_a_failure_before_the_question_comes_first(tmp_path: Path) -> None:
    error = '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/app/t.py", line 5, in main\n[rank1]: ValueError: bad shard\n'
    found = diagnosed(tmp_path, STEPS + error + "replace it? [y/N] " + ENDED)
    assert named(found) == [("error", [1])], found.summary


def test_a_rank_at_a_debuggers_prompt(tmp_path: Path) -> None:
    stop = "> /home/me/train.py(57)step()\n-> loss.backward()\n(Pdb) "
    found = diagnosed(tmp_path, STEPS + stop + ENDED)
    assert "stopped in a debugger" in found.summary, found.summary
    assert named(found) == [("not_entered", [])]
