"""What a person writes behind ``--k8s``, as a question that kubectl understands.

The labels by which each kind of job marks its pods:

- Kubeflow's training operator (v1), MPI operator: ``training.kubeflow.org/job-name``
  (kubeflow/training-operator, pkg/apis/kubeflow.org/v1/common_types.go)
- Kubeflow Trainer v2: a TrainJob makes a JobSet of its own name (kubeflow/trainer, pkg/runtime)
- JobSet: ``jobset.sigs.k8s.io/jobset-name`` (kubernetes-sigs/jobset, api/jobset/v1alpha2)
- Volcano: ``volcano.sh/job-name`` (volcano-sh/apis, pkg/apis/batch/v1alpha1/labels.go)
- LeaderWorkerSet: ``leaderworkerset.sigs.k8s.io/name`` (kubernetes-sigs/lws)
- batch Job: ``batch.kubernetes.io/job-name``, before Kubernetes 1.27 ``job-name`` alone, which newer
  ones write too (https://kubernetes.io/docs/reference/labels-annotations-taints/)
- KubeRay: ``ray.io/cluster``; a RayJob names its cluster in its status
  (ray-project/kuberay, ray-operator/controllers/ray/utils/constant.go)
"""

from __future__ import annotations

import re

from msgspec import Struct

from ...errors import UsageError

_KUBEFLOW = "training.kubeflow.org/job-name"
_JOBSET = "jobset.sigs.k8s.io/jobset-name"
RAY_CLUSTER = "ray.io/cluster"
# {kind: its label}; kubectl's own short names too.
LABELS = {
    "pytorchjob": _KUBEFLOW,
    "tfjob": _KUBEFLOW,
    "mpijob": _KUBEFLOW,
    "xgboostjob": _KUBEFLOW,
    "paddlejob": _KUBEFLOW,
    "jaxjob": _KUBEFLOW,
    "trainjob": _JOBSET,
    "jobset": _JOBSET,
    "vcjob": "volcano.sh/job-name",
    "leaderworkerset": "leaderworkerset.sigs.k8s.io/name",
    "lws": "leaderworkerset.sigs.k8s.io/name",
    "job": "job-name",
    "raycluster": RAY_CLUSTER,
}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)
_HELP = (
    "Write KIND/NAME (pytorchjob/bloom, trainjob/bloom, jobset/bloom, job/bloom, rayjob/bloom, "
    "vcjob/bloom, lws/bloom, pod/bloom-0), the NAME of a job alone, or a label selector (app=bloom)."
)


class Wanted(Struct, frozen=True):
    """What to ask for: pods by `selector`, one `pod`, those of the RayJob `ray_job`, or those with any
    of the labels that have `name` as their value.
    """

    selector: str = ""
    pod: str = ""
    ray_job: str = ""
    name: str = ""


def parse(text: str) -> Wanted:
    """What a person wrote behind ``--k8s``.

    Raises:
        UsageError: neither a job nor a selector.
    """
    text = text.strip()
    if not text or text.startswith("-"):
        raise UsageError(f"--k8s {text!r} names no job", _HELP)
    kind, slash, name = text.partition("/")
    if any(sign in text for sign in "=!(,") or not slash:
        return Wanted(name=text) if _NAME.fullmatch(text) else Wanted(selector=text)
    return _of_kind(kind.lower().partition(".")[0].removesuffix("s"), name, text)


def _of_kind(kind: str, name: str, text: str) -> Wanted:
    kind = "lws" if kind == "lw" else kind
    if not _NAME.fullmatch(name):
        raise UsageError(f"--k8s {text} has no valid name behind the /", _HELP)
    if kind == "rayjob":
        return Wanted(ray_job=name)
    if kind in ("pod", "po"):
        return Wanted(pod=name)
    if kind not in LABELS:
        raise UsageError(f"--k8s {text}: the pods of a {kind} cannot be found by its name", _HELP)
    return Wanted(selector=f"{LABELS[kind]}={name}")
