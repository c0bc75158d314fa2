"""A real job that hangs in the pods of a stand-in for Kubernetes, reached by the real kubectl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kubernetes.pods import unavailable
from tests.support.kubernetes.training import Training

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "-"),
]
PENDING = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/8 nodes are available: 8 Insufficient nvidia.com/gpu.",
        }
    ],
}


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    one = Training(tmp_path_factory.mktemp("kubernetes"))
    try:
        one.start()
        with one.api.running():
            yield one
    finally:
        one.pods.close()


def test_the_culprit_is_named_and_nothing_is_left(training: Training) -> None:
    found = training.dump()
    [cause] = found["causes"]
    assert (found["status"], cause["kind"], cause["ranks"]) == ("hang", "not_entered", [2])
    assert cause["nodes"] == ["bloom-worker-0"]
    assert found["job"]["world_size"] == 3
    assert found["missing"] == []
    for name in training.pods.running:
        assert training.pods.processes(name, "run_module") == []
    assert not [*Path("/tmp").glob("hangdoctor.??????")]


def test_a_pod_that_was_killed_for_lack_of_memory(training: Training) -> None:
    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    statuses = [{"name": "pytorch", "state": killed}]
    with training.status("bloom-worker-0", phase="Failed", containerStatuses=statuses):
        [cause] = training.dump()["causes"]
    assert (cause["kind"], cause["ranks"]) == ("dead", [2])
    assert "OOMKilled, exit code 137" in cause["summary"]
    assert "kubectl logs --previous bloom-worker-0" in cause["advice"]


def test_a_job_whose_pods_wait_for_their_turn(training: Training) -> None:
    with (
        training.status("bloom-master-0", **PENDING),
        training.status("bloom-worker-0", **PENDING),
    ):
        [cause] = training.dump()["causes"]
    assert (cause["kind"], cause["ranks"]) == ("start_stall", [])
    assert "bloom-master-0 and 1 more: Pending: Unschedulable" in cause["summary"]
    assert "kubectl describe pod bloom-master-0" in cause["advice"]


def test_a_pod_on_a_node_that_is_lost(training: Training) -> None:
    lost = {"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}
    training.api.add("nodes", {"metadata": {"name": "gpu-7"}, "status": {"conditions": [lost]}})
    before = training.api.objects["pods"]["bloom-worker-0"]["status"]
    with training.status(
        "bloom-worker-0", **before, conditions=[{"type": "Ready", "status": "False"}]
    ):
        [cause] = training.dump()["causes"]
    assert (cause["kind"], cause["ranks"]) == ("unreachable", [2])
    assert "node gpu-7 is NotReady (Kubelet stopped posting node status)" in cause["summary"]


def test_what_cannot_be_asked_for(training: Training) -> None:
    for words, code, said in (
        (["--k8s", "job/none"], 1, "there is no pod of job/none"),
        (["--k8s", "bloom", "-c", "none"], 2, "Choose one of istio-proxy, pytorch with -c."),
        (["--k8s", "rayjob/none"], 1, "not found"),
    ):
        _, errors = training.run("dump", "-q", *words, code=code)
        assert said in errors
    training.api.forbidden = "pods"
    _, errors = training.run("dump", "-q", "--k8s", "job/bloom", code=1)
    training.api.forbidden = ""
    assert "the cluster does not allow this" in errors
    assert "kubectl auth can-i" in errors
