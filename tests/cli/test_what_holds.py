"""What a rank waits for outside of its peers' operation is in the sentence and in the advice: of stacks, and of operations."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.cli.run import STARTUP
from tests.support.stage import Stage

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]
ROOT = Path(__file__).resolve().parents[2]
# A rank that sleeps or computes is else looked at again some seconds later: it may only be slow.
ONCE = ("--settle", "1")

# scenario -> what the sentence says of it, and what the advice names
CASES = [
    ("dead_child", r"[iI]ts child \d+ is dead \(exit code 3\)", r"process \d+ ended"),
    ("stopped_child", r"[iI]ts child \d+ is stopped", r"kill -CONT \d+"),
    (
        "endless_command",
        r"[iI]t waits for its child \d+ \(sleep 3600\)",
        r"process \d+ on \S+ waits for .*timeout",
    ),
    (
        "full_pipe",
        r"blocked in write on a pipe",
        r"pipe is full and no process reads it.*find /proc\S+ -lname 'pipe:\?\d+\?'",
    ),
    (
        "blocked_read",
        r"blocked in read on \S*fifo\.read",
        r"Nothing comes from .*fifo\.read.*fuser -v /",
    ),
    (
        "locked_file",
        r"blocked in flock on \S*cache\.lock",
        r"The rank itself holds the lock on /.*cache\.lock.*fuser -v /",
    ),
    ("typed_input", r"[iI]t waits for typed input", r"/dev/null"),
    (
        "forgotten_breakpoint",
        r"pdb waits for a command there",
        r"breakpoint in from_terminal .*answer pdb",
    ),
    (
        "full_queue",
        r"it waits to put into a full queue",
        r"no other Python thread to take from it",
    ),
    (
        "empty_queue",
        r"it waits to take from an empty queue",
        r"no other thread of the rank puts into it: filler at ",
    ),
    (
        "pipe_not_read",
        r"waits for its child \d+ \(python",
        r"process \d+ .*is blocked writing into a pipe that the rank does not read: "
        r"communicate\(\) instead of wait\(\)",
    ),
    ("lock", r"waiting for a lock", r"no other Python thread"),
    ("lock_of_a_thread", r"waiting for a lock", r"lock-holder at .*keep_the_lock"),
]


@pytest.fixture(scope="module", params=["stacks", "operations"])
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp(request.param)
    probe = {
        "HANGDOCTOR_DIR": str(folder / "boxes"),
        "PYTHONPATH": os.pathsep.join([str(STARTUP), str(ROOT)]),
    }
    with Stage(folder, world=3, environ=probe if request.param == "operations" else None) as job:
        yield job.wait_ready()


@pytest.mark.parametrize(("scenario", "sentence", "advice"), CASES, ids=[c[0] for c in CASES])
def test_sentence_and_advice_name_what_holds_the_rank(
    stage: Stage, scenario: str, sentence: str, advice: str
) -> None:
    stage.play(scenario, 1)
    verdict = stage.dump(*ONCE)
    stage.release(1)
    [cause] = verdict["causes"]
    assert (cause["kind"], cause["ranks"]) == ("not_entered", [1])
    assert re.search(sentence, cause["summary"]), cause["summary"]
    assert re.search(advice, cause["advice"]), cause["advice"]
    assert "bundle" not in cause["advice"]


def test_the_worker_that_makes_no_sample_is_named_with_its_line(stage: Stage) -> None:
    stage.play("load_worker_stuck", 1)
    verdict = stage.dump(*ONCE)
    workers = stage.children(1)
    stage.release(1)
    [cause] = verdict["causes"]
    assert (cause["kind"], cause["ranks"]) == ("data_wait", [1])
    told = re.search(r"its worker (\d+) is in open_fifo \(acts\.py:\d+\)", cause["summary"])
    assert told is not None and int(told[1]) in workers, cause["summary"]
    see = rf"See why open_fifo .*less \+\d+ /\S+acts\.py; py-spy dump --native --pid {told[1]}"
    assert re.search(see, cause["advice"]), cause["advice"]


def test_a_rank_in_a_checkpoint_that_did_not_run_is_not_only_late(stage: Stage) -> None:
    stage.play("save_behind_lock", 1)
    verdict = stage.dump(*ONCE)
    stage.release(1)
    [cause] = verdict["causes"]
    assert (verdict["status"], cause["kind"], cause["ranks"]) == ("hang", "checkpoint_wait", [1])
    assert "late but moving" not in cause["summary"]
    assert "holds the lock on" in cause["advice"], cause["advice"]
