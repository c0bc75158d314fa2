"""A real job that hangs in the pods of a stand-in for Kubernetes, reached by the real kubectl."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.errors import LauncherError
from hangdoctor.launchers.kubernetes import events
from hangdoctor.launchers.kubernetes.kubectl import Kubectl
from hangdoctor.launchers.kubernetes.reach import K8sReach, Target
from tests.support.kubernetes.pods import unavailable
from tests.support.kubernetes.training import Training
from tests.support.stage import wait_until

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
    assert not [*training.temporary.iterdir()]


def test_a_pod_that_was_killed_and_one_that_may_not_be_read(training: Training) -> None:
    """A capture for both: what is left of the job are ranks whose container forbids ptrace."""
    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    statuses = [{"name": "pytorch", "state": killed}]
    training.pods.without_ptrace.add("bloom-master-0")
    with training.status("bloom-worker-0", phase="Failed", containerStatuses=statuses):
        found = training.dump()
    training.pods.without_ptrace.clear()
    [cause] = found["causes"]
    assert (cause["kind"], cause["ranks"]) == ("dead", [2])
    assert "OOMKilled, exit code 137" in cause["summary"]
    assert "kubectl logs bloom-worker-0 -c pytorch" in cause["advice"]
    assert "kubectl delete pod bloom-master-0 bloom-worker-0 (then apply" in cause["advice"]
    assert any(
        "py-spy may not read the ranks in bloom-master-0 (uid 0" in note
        and note.endswith('securityContext: {capabilities: {add: ["SYS_PTRACE"]}}')
        for note in found["notes"]
    )


def test_a_job_whose_pods_wait_for_their_turn(training: Training) -> None:
    with (
        training.status("bloom-master-0", **PENDING),
        training.status("bloom-worker-0", **PENDING),
    ):
        [cause] = training.dump()["causes"]
        _, errors = training.run("sidecar", "--k8s", "bloom", code=1)
    assert "no pod of bloom runs: bloom-master-0: Pending: Unschedulable" in errors
    assert (cause["kind"], cause["ranks"]) == ("start_stall", [])
    assert "bloom-master-0 and 1 more: Pending: Unschedulable" in cause["summary"]
    assert "kubectl describe pod bloom-master-0" in cause["advice"]


def test_the_newest_warning_says_what_the_status_does_not(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the real kubectl; how the words get into a verdict is the same as for any status."""
    for name in ("KUBECONFIG", "KUBECACHEDIR"):
        monkeypatch.setenv(name, training.environ()[name])
    monkeypatch.setattr(events, "_EVENTS_S", 60.0)
    creating = {"name": "pytorch", "state": {"waiting": {"reason": "ContainerCreating"}}}
    for name, seen, message in (
        ("new", "04:20:00", "MountVolume.SetUp failed for volume lustre: timed out"),
        ("old", "04:10:00", "MountVolume.SetUp failed for volume keys: not found"),
    ):
        training.warn(name, "bloom-worker-0", "FailedMount", f"2026-11-23T{seen}Z", message)
    training.warn("other", "bloom-master-0", "Unhealthy", "2026-11-23T04:30:00Z", "of another pod")
    with training.status("bloom-worker-0", phase="Pending", containerStatuses=[creating]):
        known = K8sReach(Target("bloom"), Kubectl()).unasked()
        monkeypatch.setattr(training.api, "forbidden", "events")
        without = K8sReach(Target("bloom"), Kubectl()).unasked()
    said = "container pytorch has not started: ContainerCreating"
    event = "event FailedMount (MountVolume.SetUp failed for volume lustre: timed out)"
    assert known == {"bloom-worker-0": f"{said}; {event}"}
    assert without == {"bloom-worker-0": said}


def test_the_pods_of_a_ray_job_are_those_of_the_cluster_that_its_status_names(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KubeRay marks its pods by the cluster's name, which a retry of the job changes."""
    for name in ("KUBECONFIG", "KUBECACHEDIR"):
        monkeypatch.setenv(name, training.environ()[name])
    labels = training.api.objects["pods"]["bloom-worker-0"]["metadata"]["labels"]
    monkeypatch.setitem(labels, "ray.io/cluster", "sft-x7k2p")
    job = {"metadata": {"name": "sft"}, "status": {"rayClusterName": "sft-x7k2p"}}
    training.api.add("rayjobs", job)
    for wanted in ("rayjob/sft", "raycluster/sft-x7k2p"):
        assert [pod.name for pod in K8sReach(Target(wanted), Kubectl()).pods] == ["bloom-worker-0"]
    job["status"] = {}
    with pytest.raises(LauncherError, match="RayJob sft has no cluster yet"):
        K8sReach(Target("rayjob/sft"), Kubectl()).nodes()


@pytest.mark.full
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


@pytest.mark.full
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


@pytest.mark.full
def test_other_verbs_on_the_pods(training: Training) -> None:
    shown, _ = training.run(
        "preflight", "--k8s", "bloom", "--timeout", "60", "--json", "-", "--gpus", "0"
    )
    found = json.loads(shown)
    assert found["nodes"] == ["bloom-master-0", "bloom-worker-0"]
    reached = [f for f in found["findings"] if f["check"] == "ptrace"]
    assert [f["verdict"] for f in reached] == ["ok"], reached
    _, errors = training.run("trace", "start", "--k8s", "bloom", "--wait", "1", code=None)
    assert "no rank of the nodes of --k8s JOB has the probe" in errors


@pytest.mark.full
@pytest.mark.timeout(300)
def test_calls_are_traced_in_a_pod_whose_job_runs_under_the_probe(training: Training) -> None:
    """`kubectl exec` has none of the variables that the job's own script sets."""
    with training.probed("steps-0"):
        _, said = training.run("trace", "start", "--k8s", "pod/steps-0", "--wait", "60")
        assert "rank 0: tracing" in said
        shown, _ = training.run("trace", "status", "--k8s", "pod/steps-0", "--json")
        [row] = json.loads(shown)
        assert (row["node"], row["rank"], row["state"]) == ("steps-0", 0, "tracing")
        assert (row["follow"], row["process"]) == ("steps", "live")
        assert row["events"] > 0
        assert "trace tail --rank 0 --k8s pod/steps-0 --job" in said.replace("'", "")
        tail = ("trace", "tail", "--rank", "0", "--k8s", "pod/steps-0", "-n", "5", "--no-wait")
        shown, _ = training.run(*tail)
        assert "step" in shown, "the calls of the rank, through kubectl exec"
        _tail_ends_in_the_pod(training, "steps-0")
        _, said = training.run("trace", "stop", "--k8s", "pod/steps-0", "--wait", "60")
        assert "rank 0: stopped" in said


def _tail_ends_in_the_pod(training: Training, name: str) -> None:
    """What runs behind `kubectl exec` does not end with kubectl by itself."""
    words = ["trace", "tail", "--rank", "0", "--k8s", f"pod/{name}"]
    command = [sys.executable, "-m", "hangdoctor", *words]
    with subprocess.Popen(command, env=training.environ(), stdout=subprocess.PIPE) as tail:
        assert tail.stdout is not None and tail.stdout.readline()
        assert training.pods.processes(name, "tail --rank 0") != []
        tail.kill()
    wait_until(lambda: training.pods.processes(name, "tail --rank 0") == [], "its far end ends")


@pytest.mark.full
def test_a_sidecar_watches_the_pods_through_kubectl(training: Training, tmp_path: Path) -> None:
    """The pods reach no port of this host: what the agents say goes through `kubectl exec`."""
    command = [sys.executable, "-m", "hangdoctor", "sidecar", "--k8s", "bloom", "--once"]
    flags = ["--folder", str(tmp_path / "job"), "--stall-after", "900"]
    log = tmp_path / "log"
    with log.open("wb") as output:
        sidecar = subprocess.Popen(
            [*command, *flags, "--bind", "tcp://127.0.0.1:*"],
            env=training.environ(),
            cwd=tmp_path,
            stderr=output,
        )
    try:
        for name in training.pods.running:
            wait_until(lambda name=name: f"{name}: its agent" in log.read_text(), log.read_text, 90)
        sidecar.send_signal(signal.SIGUSR1)
        assert sidecar.wait(timeout=60) == 0
    finally:
        sidecar.kill()
        sidecar.wait(timeout=30)
    assert "Rank 2 (bloom-worker-0, pid" in log.read_text()
    for name in training.pods.running:
        wait_until(
            lambda name=name: not training.pods.processes(name, "behind_tunnel"), "the agents end"
        )
    assert not [*training.temporary.iterdir()]


@pytest.mark.full
def test_a_debug_container_may_read_what_the_ranks_own_may_not(training: Training) -> None:
    """The stand-in runs it in the mounts of the pod: its image is not tried here."""
    training.pods.without_ptrace.update(training.pods.running)
    found = training.dump("--debug-image", "busybox")
    training.pods.without_ptrace.clear()
    [cause] = found["causes"]
    assert (cause["kind"], cause["ranks"]) == ("not_entered", [2])
    assert found["notes"] == []
