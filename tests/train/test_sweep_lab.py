"""A sweep over Slurm jobs on the lab's cluster, one of which hangs; and one job by train.submit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.lab import LAB, Cluster, running_cluster, wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.torch,
    pytest.mark.full,
    pytest.mark.timeout(900),
]
OPTIONS = {
    "parallel": {"tp": 2},
    "model": {"layers": 2, "hidden_size": 32, "heads": 4, "seq_length": 32},
    "train": {"global_batch": 4},
    "data": {"workers": 0},
}
SETTINGS = {"OMP_NUM_THREADS": "1", "MASTER_PORT": "29741"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as lab:
        yield lab


def test_a_submitted_job_trains_beside_its_sidecar(cluster: Cluster) -> None:
    folder = Path(cluster.folder)
    (folder / "gpt.yaml").write_text(yaml.safe_dump(OPTIONS))
    words = "--system slurm --nodes 2 --per-node 1 --cpu --train.iterations 3 --json made.json"
    settings = [word for name, value in SETTINGS.items() for word in ("--env", f"{name}={value}")]
    home = ["--env", f"HANGDOCTOR_FOLDER={folder / 'side'}"]
    command = [sys.executable, "-m", "hangdoctor.train.submit", "gpt.yaml", *words.split()]
    cluster.login(*command, *settings, *home, cwd=folder)
    made = json.loads((folder / "made.json").read_text())
    assert (folder / "logfiles").read_text() == f"{made['log']}\n"
    log = Path(made["log"])
    wait_until(lambda: cluster.login("squeue", "-h", "-j", made["job"]) == "", "its end", 300)
    text = log.read_text()
    assert "iteration        3/       3" in text, text[-3000:]
    assert "hangdoctor: listening on" in text and "(2 nodes)" in text


def test_jobs_of_slurm_are_measured_and_a_hang_comes_with_its_verdict(cluster: Cluster) -> None:
    folder = Path(cluster.folder)
    path = folder / "slurm.yaml"
    given = {
        "gpus": 2,
        "node": 1,
        "cpu": True,
        "environment": SETTINGS,
        "options": OPTIONS,
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
