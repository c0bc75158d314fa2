"""Pods on Kubernetes: which of them are a job, which of their containers has the ranks, and what keeps
one from being asked. Their JSON has the form that the API's documentation gives.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.errors import LauncherError, UsageError
from hangdoctor.launchers.kubernetes import events, in_pod, pods, selectors
from hangdoctor.launchers.kubernetes.condition import not_ready, trouble_of
from hangdoctor.launchers.kubernetes.kubectl import Kubectl
from hangdoctor.launchers.kubernetes.reach import K8sReach, Target
from hangdoctor.launchers.kubernetes.selectors import Wanted
from hangdoctor.launchers.remote import Outcome
from hangdoctor.launchers.template import TemplateReach
from hangdoctor.launchers.verb_on_nodes import Everywhere
from tests.support.kubernetes.training import pod as running_pod
from tests.support.stage import hangdoctor

KUBEFLOW = "training.kubeflow.org"
INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("pytorchjob/bloom", Wanted(selector=f"{KUBEFLOW}/job-name=bloom")),
        ("PyTorchJobs.kubeflow.org/bloom", Wanted(selector=f"{KUBEFLOW}/job-name=bloom")),
        ("trainjob/bloom", Wanted(selector="jobset.sigs.k8s.io/jobset-name=bloom")),
        ("jobset/bloom", Wanted(selector="jobset.sigs.k8s.io/jobset-name=bloom")),
        ("vcjob/bloom", Wanted(selector="volcano.sh/job-name=bloom")),
        ("lws/bloom", Wanted(selector="leaderworkerset.sigs.k8s.io/name=bloom")),
        ("job/bloom", Wanted(selector="job-name=bloom")),
        ("raycluster/bloom", Wanted(selector="ray.io/cluster=bloom")),
        ("rayjob/bloom", Wanted(ray_job="bloom")),
        ("pod/bloom-0", Wanted(pod="bloom-0")),
        ("bloom", Wanted(name="bloom")),
        ("app=bloom,tier!=web", Wanted(selector="app=bloom,tier!=web")),
        ("example.com/app=bloom", Wanted(selector="example.com/app=bloom")),
        ("app in (a,b)", Wanted(selector="app in (a,b)")),
    ],
)
def test_what_a_person_writes(text: str, wanted: Wanted) -> None:
    assert selectors.parse(text) == wanted


@pytest.mark.parametrize("text", ["", "-A", "cronjob/bloom", "job/", "job/-x", "job/a b"])
def test_what_names_no_job(text: str) -> None:
    with pytest.raises(UsageError):
        selectors.parse(text)


def read(*items: dict[str, Any]) -> list[pods.Pod]:
    return pods.read(json.dumps({"kind": "List", "items": list(items)}))


def indexed(name: str, **labels: str) -> dict[str, Any]:
    item = running_pod(name, "worker")
    item["metadata"]["labels"] = {key.replace("__", "/"): value for key, value in labels.items()}
    return item


def test_pods_are_in_the_order_of_their_ranks() -> None:
    kubeflow = [running_pod(f"b-worker-{i}", "worker", i) for i in (10, 2, 0)]
    found = pods.in_order(read(*kubeflow, running_pod("b-master-0", "master")))
    assert [p.name for p in found] == ["b-master-0", "b-worker-0", "b-worker-2", "b-worker-10"]


@pytest.mark.parametrize("label", [INDEX, "apps.kubernetes.io/pod-index", "volcano.sh/task-index"])
def test_an_index_comes_before_a_name(label: str) -> None:
    items = [indexed("a-xk2", **{label: "11"}), indexed("b-9qz", **{label: "3"})]
    assert [p.name for p in pods.in_order(read(*items))] == ["b-9qz", "a-xk2"]


def test_a_pod_that_was_replaced_is_left_out() -> None:
    owner = [{"kind": "Job", "name": "bloom", "uid": "u1", "apiVersion": "batch/v1"}]
    old, new = indexed("bloom-0-aaa", **{INDEX: "0"}), indexed("bloom-0-bbb", **{INDEX: "0"})
    other = indexed("bloom-1-ccc", **{INDEX: "1"})
    for item in (old, new, other):
        item["metadata"]["ownerReferences"] = owner
    old["status"]["phase"] = other["status"]["phase"] = "Failed"
    new["metadata"]["creationTimestamp"] = "2026-11-23T05:00:00Z"
    assert [p.name for p in pods.in_order(read(old, new, other))] == ["bloom-0-bbb", "bloom-1-ccc"]


def containers(*items: dict[str, Any], default: str = "") -> pods.Pod:
    item = running_pod("b-0", "worker")
    item["spec"]["containers"] = list(items)
    item["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": default}
    return read(item)[0]


def test_the_container_with_the_ranks() -> None:
    mesh = {"name": "istio-proxy", "resources": {"requests": {"cpu": "100m", "memory": 1024}}}
    trains = {"name": "trains", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    ranks = {"name": "ranks", "env": [{"name": "MASTER_ADDR", "value": "b-0"}]}
    assert pods.container_of(containers(mesh, ranks)) == "ranks"
    assert pods.container_of(containers(mesh, ranks, trains)) == "trains"
    assert pods.container_of(containers(mesh, trains, default="istio-proxy")) == "istio-proxy"
    assert pods.container_of(containers(mesh, trains, default="gone")) == "trains"
    assert pods.container_of(containers(mesh, {"name": "b"})) == "istio-proxy"
    assert pods.container_of(containers(mesh, trains), "istio-proxy") == "istio-proxy"
    assert pods.container_of(containers(mesh, trains), "none") == ""


def test_no_list_of_pods() -> None:
    with pytest.raises(LauncherError, match="kubectl printed no list of pods"):
        pods.read("<html>")


def terminated(code: int, reason: str) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": None}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def state(now: dict[str, Any], last: dict[str, Any] | None = None, restarts: int = 0) -> Any:
    one = {"name": "pytorch", "restartCount": restarts, "state": now, "lastState": last or {}}
    return {"phase": "Running", "containerStatuses": [one]}


UNSCHEDULED = {
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
INIT = {
    "phase": "Pending",
    "initContainerStatuses": [{"name": "data", "state": waiting("CrashLoopBackOff")}],
    "containerStatuses": [{"name": "pytorch", "state": waiting("PodInitializing")}],
}


@pytest.mark.parametrize(
    ("status", "kind", "code", "words"),
    [
        (
            UNSCHEDULED,
            "not_started",
            None,
            "Pending: Unschedulable (0/8 nodes are available: 8 Insufficient nvidia.com/gpu)",
        ),
        (INIT, "not_started", None, "its init container data cannot start: CrashLoopBackOff"),
        (
            state(waiting("ImagePullBackOff", "no such tag")),
            "not_started",
            None,
            "container pytorch has not started: ImagePullBackOff (no such tag)",
        ),
        (
            state(terminated(137, "OOMKilled")),
            "ended",
            -9,
            "container pytorch has ended: OOMKilled, exit code 137",
        ),
        (
            state(terminated(1, "Error")),
            "ended",
            1,
            "container pytorch has ended: Error, exit code 1",
        ),
        (
            state(waiting("CrashLoopBackOff"), terminated(139, "Error"), 4),
            "ended",
            -11,
            "CrashLoopBackOff, restarted 4 times; container pytorch has ended: Error, exit code 139",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
            "ended",
            None,
            "the pod was ended: Evicted (low on memory)",
        ),
        (
            {"phase": "Unknown", "reason": "NodeLost"},
            "lost",
            None,
            "node gpu-7 is lost",
        ),
    ],
)
def test_why_a_pod_cannot_be_asked(
    status: dict[str, Any], kind: str, code: int | None, words: str
) -> None:
    item = running_pod("b-0", "worker")
    item["status"] = status
    trouble = trouble_of(read(item)[0], "pytorch")
    assert trouble is not None
    assert (trouble.kind, trouble.exit_code, trouble.why) == (kind, code, words)
    assert trouble.out_of_memory == ("OOMKilled" in words)


@pytest.mark.parametrize(
    ("reason", "message", "node", "more"),
    [
        ("FailedScheduling", "0/8 nodes are available: 8 Insufficient nvidia.com/gpu.", "", ""),
        ("FailedScheduling", "0/9 nodes are available", "gpu-7", ""),  # before it had a node
        ("BackOff", "Back-off restarting failed container", "", ""),
        ("FailedMount", "lustre: timed out", "", "; event FailedMount (lustre: timed out)"),
    ],
)
def test_an_event_counts_where_it_says_more(
    monkeypatch: pytest.MonkeyPatch, reason: str, message: str, node: str, more: str
) -> None:
    item = running_pod("b-0", "worker")
    item["status"], item["spec"]["nodeName"] = UNSCHEDULED, node
    [pod] = read(item)
    trouble = trouble_of(pod, "pytorch")
    assert trouble is not None
    event = {"metadata": {"name": "e"}, "involvedObject": {"name": "b-0"}, "type": "Warning"}
    printed = json.dumps({"items": [event | {"reason": reason, "message": message}]})
    monkeypatch.setattr(Kubectl, "outcome", lambda *asked: Outcome("", printed))
    [found] = events.explained({"b-0": trouble}, Kubectl(), [pod]).values()
    assert found.why == trouble.why + more


def test_a_pod_that_runs_can_be_asked() -> None:
    assert trouble_of(read(running_pod("b-0", "worker"))[0], "pytorch") is None


def test_nodes_that_are_not_ready() -> None:
    stopped = "Kubelet stopped posting node status."
    lost = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": stopped}
    items = [
        {"metadata": {"name": "gpu-7"}, "status": {"conditions": [lost]}},
        {"metadata": {"name": "gpu-8"}, "status": {"conditions": [lost | {"status": "True"}]}},
    ]
    words = {"gpu-7": "node gpu-7 is NotReady (Kubelet stopped posting node status)"}
    assert not_ready(json.dumps({"items": items})) == words
    assert not_ready("") == {}


def test_a_bad_pod_is_left_out_by_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = json.dumps({"items": [running_pod(f"b-{i}", "worker") for i in range(2)]})
    monkeypatch.setattr(Kubectl, "outcome", lambda *asked: Outcome("", printed, code=0))
    reach = K8sReach(Target("job/b"), Kubectl(context="lab"))
    assert Everywhere(reach).leave_out(["b-1"]) == "kubectl --context lab cordon gpu-7"
    assert Everywhere(TemplateReach("sh {host}", "n1,n2")).leave_out(["n1", "n2"]) == (
        "sbatch --exclude=n[1-2]"
    )


HANGS = "import sys, time\nprint(sys.argv[1:], flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def hangs(tmp_path: Path) -> Path:
    """A folder with a `hangdoctor` that never answers."""
    package = tmp_path / "modules" / "hangdoctor"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(HANGS)
    return package.parent


def test_what_runs_in_a_pod_ends_by_itself(hangs: Path) -> None:
    command = in_pod.become(sys.executable, ["agent", "--once", "x"], 1)
    done = subprocess.run(
        command, env={"PYTHONPATH": str(hangs)}, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "['agent', '--once', 'x']\n"
    assert done.returncode == -signal.SIGALRM


def test_a_copy_that_hangs_leaves_nothing(hangs: Path, tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={hangs} exec {sys.executable} "$@"\n')
    program.chmod(0o700)
    archive, temporary = tmp_path / "copy.tgz", tmp_path / "tmp"
    temporary.mkdir()
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(program, "bin/python")
    command = in_pod.unpack_and_become(archive.stat().st_size, ["agent"], 1)
    begin = time.monotonic()
    with archive.open("rb") as data:
        done = subprocess.run(
            command,
            stdin=data,
            env={"TMPDIR": str(temporary), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.stdout == "['agent']\n"
    assert time.monotonic() - begin > 0.9
    assert list(temporary.iterdir()) == []


def test_what_look_prints() -> None:
    assert in_pod.found("machine x86_64\npython /opt/bin/python3\n") == in_pod.Found(
        "x86_64", "/opt/bin/python3"
    )
    assert in_pod.found("machine aarch64\npython\n") == in_pod.Found("aarch64", "")
    assert in_pod.found("machine x86_64\n") is None


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_a_cluster_that_does_not_answer(tmp_path: Path) -> None:
    """kubectl says it to a person in the last line, behind several of its own log."""
    env = os.environ | {"KUBECONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)}
    done = hangdoctor("dump", "--k8s", "job/x", cwd=tmp_path, code=1, env=env)
    assert "API server does not answer (kubectl: The connection to the server" in done.stderr
    assert "memcache" not in done.stderr
