"""A sweep over Slurm jobs on the lab's cluster: two nodes with a rank each, one job of which hangs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.lab import LAB, Cluster, unavailable

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.torch,
    pytest.mark.full,
    pytest.mark.timeout(900),
]
SETTINGS = {"OMP_NUM_THREADS": "1", "MASTER_PORT": "29741"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    lab = Cluster()
    try:
        lab.up()
        if not lab.netns:
            pytest.skip("the lab's Slurm cluster needs the right to make namespaces")
        yield lab
    finally:
        lab.down()


def test_jobs_of_slurm_are_measured_and_a_hang_comes_with_its_verdict(cluster: Cluster) -> None:
    folder = Path(cluster.folder)
    path = folder / "slurm.yaml"
    given = {
        "gpus": 2,
        "node": 1,
        "cpu": True,
        "environment": SETTINGS,
        "options": {
            "parallel": {"tp": 2},
            "model": {"layers": 2, "hidden_size": 32, "heads": 4, "seq_length": 32},
            "train": {"global_batch": 4},
            "data": {"workers": 0},
        },
        "jobs": [{}, {"fault": "sleep@1:2"}],
    }
    path.write_text(yaml.safe_dump(given))
    words = ["--launcher", "sbatch", "--stall-after", "5", "--json", str(folder / "found.json")]
    command = [sys.executable, "-m", "hangdoctor.train.sweep", str(path), *words]
    done = subprocess.run(
        [LAB / "cluster-node", "exec", "login", *command],
        env=cluster.env,
        capture_output=True,
        text=True,
        timeout=850,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    fast, hung = json.loads((folder / "found.json").read_text())["results"]
    assert (fast["status"], fast["sizes"]["nodes"], len(fast["iterations"])) == ("measured", 2, 3)
    assert hung["status"] == "hang"
    cause = hung["verdict"]["causes"][0]
    assert (cause["kind"], cause["ranks"], cause["nodes"]) == ("not_entered", [1], ["n2"])
    # No job is left behind: a hung one was ended.
    assert cluster.login("squeue", "-h") == ""
