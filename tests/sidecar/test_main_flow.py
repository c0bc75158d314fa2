"""Progress is the training's: what other threads of a rank poll beside it hides no stall."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.polling import SCRIPT, incidents, polling_environment, steps
from tests.support.sidecar_stage import Job, Start
from tests.support.stage import wait_until

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


ONE_OF_TWO = [pytest.param(what, marks=pytest.mark.full) for what in ("store", "group")]


@pytest.fixture(params=["nothing", *ONE_OF_TWO, "store group"])
def polling(job: Job, start: Start, request: pytest.FixtureRequest) -> Iterator[Job]:
    """Two ranks that train, with threads that poll, an agent and a collector that knows their
    rhythm.
    """
    environ = polling_environment(job)
    job.collector()
    for rank in ("0", "1"):
        words = [str(SCRIPT), str(job.logs / "control"), *request.param.split()]
        start(f"rank{rank}", *words, **environ, RANK=rank)
    job.agent("n1", environ["TORCHELASTIC_RUN_ID"])
    wait_until(lambda: (job.logs / "control" / "at.0").exists(), "they train", 100)
    wait_until(lambda: job.said("collector", "rhythm is known") > 0, "the rhythm is known")
    before = steps(job)  # a few more than the first: until then it counts as a phase that is new
    wait_until(lambda: steps(job) > before + 60, "it goes on", 100)
    yield job


def test_a_stall_is_seen_as_soon_with_threads_that_poll_as_without(polling: Job) -> None:
    (polling.logs / "control" / "loader").touch()
    wait_until(lambda: bool(incidents(polling)), "a verdict", 80)
    [found] = incidents(polling)
    assert (found.status, found.ranks) == ("hang", "1"), found.summary
    # With a poll taken for progress no pause would ever be longer than that between two polls.
    assert "no progress for" in found.reason
    saved = polling.folder / "incidents" / found.id / "diagnosis.json"
    assert json.loads(saved.read_text())["causes"][0]["kind"] != "slow"
