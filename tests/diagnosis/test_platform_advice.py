"""Advice in the commands of the platform that a job runs on: a user of Kubernetes has no ssh, and no
Slurm.
"""

from __future__ import annotations

import re

import msgspec
import pytest

from hangdoctor.diagnosis import findings as f
from hangdoctor.diagnosis.wording.advice import advice
from hangdoctor.launchers.kubernetes import pods
from hangdoctor.launchers.kubernetes.kubectl import Kubectl
from hangdoctor.launchers.kubernetes.person import commands_of
from hangdoctor.launchers.pbs_job import PbsJobReach
from hangdoctor.launchers.ray_reach import RayReach
from hangdoctor.model.capture import Site
from tests.diagnosis.test_wording import PATTERNS
from tests.support.kubernetes.training import pod


def site_of(wanted: str, count: int, owned: bool = True) -> Site:
    """The site of a job with so many pods, in namespace `training`."""
    items = [pod(f"bloom-worker-{i}", "worker", i) for i in range(count)]
    for item in items:
        item["metadata"]["ownerReferences"] = [{"uid": "u1"}] if owned else []
    found = [msgspec.convert(item, pods.Pod) for item in items]
    return commands_of(Kubectl("training"), wanted, found, pods.container_of)


K8S = site_of("pytorchjob/bloom", 2)
RAY = RayReach("10.0.0.2:6379").site()
PBS = PbsJobReach("123.server").site()


def of_kind(kind: str, site: Site | None) -> str:
    finding = msgspec.structs.replace(PATTERNS[kind], site=site)  # type: ignore[index]
    return advice(finding)


@pytest.mark.parametrize("kind", sorted(PATTERNS))
@pytest.mark.parametrize("site", [K8S, RAY, PBS])
def test_no_advice_is_in_the_words_of_slurm(kind: str, site: Site) -> None:
    said = of_kind(kind, site)
    assert not re.search(r"scontrol|sbatch|scancel|--mem\b|--jobid", said), said
    assert "{" not in said, said


@pytest.mark.parametrize("kind", sorted(PATTERNS))
def test_a_command_in_a_pod_says_how_to_get_there(kind: str) -> None:
    said = of_kind(kind, K8S)
    assert not re.search(r"\b[Oo]n n2\b", said), said
    if re.search(r"less \+|kill -|py-spy|timeout 5|/proc/", said):
        assert "n2 (kubectl -n training exec -it n2 -c pytorch -- sh)" in said, said


def test_a_rank_that_is_gone_is_restarted_by_the_platform() -> None:
    died = PATTERNS["dead"]
    assert of_kind("dead", K8S) == (
        "The job cannot continue without this rank: restart it from the last checkpoint: "
        "kubectl -n training delete pod bloom-worker-0 bloom-worker-1 (its controller makes them "
        "anew); see kubectl -n training logs n2 -c pytorch."
    )
    assert "ray job stop SUBMISSION_ID" in of_kind("dead", RAY)
    assert "qdel 123.server, then submit it again with qsub" in of_kind("dead", PBS)
    killed = msgspec.structs.replace(died, story=f.Died(f.End(-9, oom_kills=1)), site=K8S)
    assert "a larger resources.limits.memory of container pytorch" in advice(killed)
    assert "a larger --mem." in advice(msgspec.structs.replace(killed, site=None))


def test_native_frames_come_by_a_second_capture() -> None:
    """py-spy is in few images; hangdoctor brings its own."""
    finding = msgspec.structs.replace(PATTERNS["interpreter_lock"], site=K8S)
    assert "See it: hangdoctor dump --k8s pytorchjob/bloom -n training --native" in advice(finding)


def test_what_became_of_a_node_that_cannot_be_seen() -> None:
    lost = msgspec.structs.replace(PATTERNS["unreachable"], nodes=["n3"])
    asked = {
        site: advice(msgspec.structs.replace(lost, site=site)) for site in (K8S, RAY, PBS, None)
    }
    assert "kubectl -n training describe pod n3. Without it the job must be" in asked[K8S]
    assert "ray list nodes --detail" in asked[RAY] and "pbsnodes n3" in asked[PBS]
    assert "scontrol show node n3" in asked[None]


@pytest.mark.parametrize(
    ("wanted", "count", "owned", "restart"),
    [
        ("bloom", 9, True, "-l 'training.kubeflow.org/job-name=bloom' (its controller"),
        ("app in (a,b)", 9, True, "-l 'app in (a,b)' (its controller"),
        ("pod/bloom-worker-0", 1, False, "bloom-worker-0 (then apply their manifest again)"),
    ],
)
def test_all_pods_of_the_job_and_no_other_are_named(
    wanted: str, count: int, owned: bool, restart: str
) -> None:
    assert f"kubectl -n training delete pod {restart}" in site_of(wanted, count, owned).restart
