"""`dump --ray` on a real Ray cluster: two nodes of the lab with a raylet each, Ray Train over both of them,
hung; then one node is lost.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lab import LAB, ROOT, Cluster, unavailable, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.full, pytest.mark.timeout(600)]

JOB = ROOT / "tests" / "support" / "jobs" / "ray_two_nodes.py"
HEAD = "10.77.0.1:6399"
_RAY = [sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus", "2"]
_RAY += ["--object-store-memory", "100000000", "--disable-usage-stats"]


@pytest.fixture(scope="module")
def lab() -> Iterator[Cluster]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed (make test-frameworks installs it)")
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    cluster = Cluster()
    try:
        cluster.up()
        if not cluster.netns:
            pytest.skip("needs the right to make namespaces")
        yield cluster
    finally:
        cluster.down()


def _environ() -> dict[str, str]:
    """A cluster without tokens, whatever this user's own clusters have, and without a proxy."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "eth0",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TRAIN_ENABLE_STATE_TRACKING": "0",
        "no_proxy": "*",
    }


def _start(lab: Cluster, node: str, *words: str) -> None:
    """A raylet, which on a busy machine may need longer than the 30 s that Ray gives it: then again."""
    for attempt in range(5):
        done = lab.node("exec", node, *_RAY, *words, env=_environ(), check=attempt == 4)
        if done.returncode == 0:
            return
        stop = [sys.executable, "-m", "ray.scripts.scripts", "stop", "--force"]
        lab.node("exec", node, *stop, env=_environ(), check=False)


@contextlib.contextmanager
def _hung(lab: Cluster) -> Iterator[None]:
    """Raylets on n1 and n2, and a training that hangs on them."""
    head = ["--head", "--port", "6399", "--include-dashboard=false"]
    head += ["--node-ip-address", "10.77.0.1", "--temp-dir", str(lab.folder / "r")]
    _start(lab, "n1", *head)
    _start(lab, "n2", "--address", HEAD, "--node-ip-address", "10.77.0.2")
    control = lab.folder / "ray-job"
    control.mkdir()
    with (lab.folder / "ray-job.log").open("wb") as log:
        job = subprocess.Popen(
            [LAB / "cluster-node", "exec", "n1", sys.executable, JOB, HEAD, control],
            env=lab.env | _environ(),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
    try:
        wait_until(lambda: _last_step(control), f"the last step: see {log.name}", 300)
        yield
    finally:
        job.kill()
        job.wait(timeout=30)


def _last_step(control: Path) -> bool:
    return all((control / f"rank.{rank}.2").exists() for rank in range(4))


def test_a_hung_ray_train_over_two_nodes_and_a_lost_node(lab: Cluster) -> None:
    with _hung(lab):
        diagnosis = lab.dump("--ray", "--timeout", "60", node="n1", env=_environ())
        first = diagnosis["causes"][0]
        assert (first["kind"], first["ranks"]) == ("not_entered", [2])
        assert first["where"]["frame"].startswith("load_batch (")
        assert [rank["rank"] for rank in diagnosis["ranks"]] == [0, 1, 2, 3]
        assert diagnosis["job"]["nodes"] == ["n1", "n2"]
        notes = [note for note in diagnosis["notes"] if note.startswith("Ray job ")]
        assert len(notes) == 2 and all(", actors " in note for note in notes)
        for node in ("n1", "n2"):
            assert not lab.processes(node, "agent --once") and not lab.processes(node, "ray_driver")
        placed = {rank["rank"]: rank["node"] for rank in diagnosis["ranks"]}
        lab.node("blackhole", "n2")
        lost = lab.dump("--ray", "--timeout", "25", node="n1", env=_environ())
        [missing] = lost["missing"]
        assert missing["node"] == "n2"
        assert missing["ranks"] == [rank for rank, node in placed.items() if node == "n2"]
        assert "no answer" in missing["why"] or "Ray" in missing["why"]
