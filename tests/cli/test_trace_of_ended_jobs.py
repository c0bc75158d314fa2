"""`hangdoctor trace` beside jobs that have ended: what it says of them leads somewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.stage import hangdoctor

ROOT = Path(__file__).parents[2]
RANK = """
import time
import hangdoctor.probe as probe
probe.install()
probe.iteration(1)
print("up", flush=True)
time.sleep(600)
"""
RUN = "cc8dec6{}-7052-41e1-b9fe-a121c43bc345"
Rank = Callable[[int], subprocess.Popen[bytes]]


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    """Start the only rank of a run of torchrun --standalone."""
    started: list[subprocess.Popen[bytes]] = []

    def start(number: int) -> subprocess.Popen[bytes]:
        environ = os.environ | {
            "HANGDOCTOR_DIR": str(tmp_path / "boxes" / str(number)),
            "PYTHONPATH": str(ROOT),
            "RANK": "0",
            "WORLD_SIZE": "1",
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": "1",
            "TORCHELASTIC_RUN_ID": RUN.format(number),
        }
        process = subprocess.Popen([sys.executable, "-c", RANK], env=environ, stdout=-1)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        return process

    (tmp_path / "boxes").mkdir()
    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_of_a_job_that_ended_untraced_no_advice_leads_in_a_circle(
    rank: Rank, tmp_path: Path
) -> None:
    process = rank(1)
    process.kill()
    process.wait()
    where = ("--folder", str(tmp_path / "boxes"))
    start = hangdoctor("trace", "start", *where, cwd=tmp_path, code=2).stderr
    tail = hangdoctor("trace", "tail", "--rank", "0", *where, cwd=tmp_path, code=2).stderr
    assert "no rank of job cc8dec61-localhost-1 is running" in start
    assert "rank 0 has ended and was never traced" in tail
    for said in (start, tail):
        assert "hangdoctor run --trace -- CMD" in said and "trace start" not in said, said


def test_only_jobs_that_run_are_offered_beside_one_that_runs_and_by_short_names(
    rank: Rank, tmp_path: Path
) -> None:
    ended = rank(1)
    ended.kill()
    ended.wait()
    rank(2)
    where = ("--folder", str(tmp_path / "boxes"))
    alone = hangdoctor("trace", "status", *where, cwd=tmp_path).stderr
    assert "also here" not in alone, alone
    rank(3)
    said = hangdoctor("trace", "status", *where, cwd=tmp_path).stderr
    assert "using the newest job, cc8dec63-localhost-1 (1 rank of python -c, pid " in said
    assert "; also here: cc8dec62-localhost-1 (1 rank of " in said
