"""Hangs of mpi4py that were ended by SIGTERM: the black boxes name who hung them, as a living job's stacks do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.errors import BadInput
from hangdoctor.readers.blackbox import read_box
from tests.support import mpi
from tests.support.framework_jobs import HangJob, beside, jobs, judge
from tests.support.stage import hangdoctor, wait_until

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]
WORLD = 4
IDLE = 23  # heartbeats, one a second: more than the 20 s that a place needs


def environment(folder: Path) -> dict[str, str]:
    paths = [os.environ.get("PYTHONPATH", ""), *map(str, beside("mpi"))]
    return {
        **os.environ,
        **mpi.AS_ANYONE,
        "PYTHONPATH": os.pathsep.join(paths),
        "HANG_FOLDER": str(folder),
        "HANGDOCTOR_DIR": str(folder / "boxes"),
        "OMP_NUM_THREADS": "1",
    }


def beats(folder: Path) -> list[int]:
    """Of each rank, heartbeats since it got on last."""
    found = []
    for path in (folder / "boxes").glob("*.blackbox"):
        try:
            place = read_box(path).place
        except BadInput:
            continue
        found.append(place.beats if place is not None else 0)
    return found


def ended(job: HangJob, folder: Path) -> dict[str, object]:
    """What the boxes say of the job after SIGTERM."""
    [command, *_] = [words for kind, words in mpi.kinds().items() if kind == "openmpi"]
    run = [sys.executable, "-m", "hangdoctor", "run", "--", *command, "-n", str(WORLD)]
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen(
            [*run, sys.executable, str(job.path)], env=environment(folder), stdout=log, stderr=log
        )
    try:
        wait_until(
            lambda: sum(n >= IDLE for n in beats(folder)) == WORLD or started.poll() is not None,
            lambda: f"{beats(folder)} {(folder / 'log').read_text()[-2000:]}",
            300,
        )
        assert started.poll() is None, (folder / "log").read_text()[-2000:]
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(60)
    said = hangdoctor("diagnose", "boxes", "--json", "-", cwd=folder, code=None)
    return dict(json.loads(said.stdout))


@pytest.mark.parametrize("name", ["gather_on_rank_zero", "one_asleep", "tags_apart"])
def test_who_hung_it_is_named_after_the_end(name: str, tmp_path: Path) -> None:
    [job] = [job for job in jobs() if job.name == f"mpi4py_{name}"]
    if job.missing() or "openmpi" not in mpi.kinds():
        pytest.skip("no mpi4py or no Open MPI (make test-frameworks installs them)")
    (tmp_path / "boxes").mkdir(mode=0o700)
    said = ended(job, tmp_path)
    verdict = judge(job, said)
    assert verdict.word == "exact", f"{verdict.word}: {said['summary']}"
