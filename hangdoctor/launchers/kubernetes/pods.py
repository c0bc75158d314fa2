"""Pods as ``kubectl get pods -o json`` prints them, as far as this project reads them.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from ...errors import LauncherError
from ...text.ranges import number_in

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
# A container with one of these is where ranks run: what Kubeflow's operators and torchrun read, and
# what an Indexed Job gives to its containers.
_RANK_VARIABLES = frozenset(
    "RANK WORLD_SIZE MASTER_ADDR PET_NNODES PET_NODE_RANK JOB_COMPLETION_INDEX TF_CONFIG".split()
)
# Where a pod's place among its peers is written, the group before the member.
# Kubeflow: pkg/apis/kubeflow.org/v1/common_types.go of kubeflow/training-operator;
# JobSet: api/jobset/v1alpha2/jobset_types.go of kubernetes-sigs/jobset;
# LeaderWorkerSet: api/leaderworkerset/v1/leaderworkerset_types.go of kubernetes-sigs/lws;
# Volcano: pkg/apis/batch/v1alpha1/labels.go of volcano-sh/apis;
# Job and StatefulSet: https://kubernetes.io/docs/reference/labels-annotations-taints/
_INDICES = (
    "leaderworkerset.sigs.k8s.io/group-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "jobset.sigs.k8s.io/job-global-index",
    "jobset.sigs.k8s.io/job-index",
    "training.kubeflow.org/replica-index",
    "batch.kubernetes.io/job-completion-index",
    "volcano.sh/task-index",
    "apps.kubernetes.io/pod-index",
)
_ROLES = (
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/job-role",
    "jobset.sigs.k8s.io/replicatedjob-name",
    "volcano.sh/task-spec",
    "ray.io/node-type",
)
# Roles whose ranks come first: rank 0 is in them.
_FIRST = frozenset({"master", "chief", "launcher", "leader", "head"})


class Variable(Struct, frozen=True):
    """One environment variable of a container."""

    name: str
    value: str = ""


class Resources(Struct, frozen=True):
    """What a container asks for, by name: ``nvidia.com/gpu``, ``memory`` ..."""

    limits: dict[str, str | int] = {}
    requests: dict[str, str | int] = {}


class Container(Struct, frozen=True):
    """One container of a pod as it was asked for."""

    name: str
    image: str = ""
    env: list[Variable] = []
    resources: Resources = Resources()


class Ended(Struct, rename="camel", frozen=True):
    """How a container ended."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class Waiting(Struct, frozen=True):
    """Why a container does not run yet, or not again."""

    reason: str = ""
    message: str = ""


class State(Struct, frozen=True):
    """What a container does: at most one of them is set, and none where nothing is known."""

    running: dict[str, object] | None = None
    waiting: Waiting | None = None
    terminated: Ended | None = None


class ContainerStatus(Struct, rename="camel", frozen=True):
    """One container of a pod as it is."""

    name: str
    image_id: str = msgspec.field(default="", name="imageID")
    restart_count: int = 0
    state: State = State()
    last_state: State = State()


class Condition(Struct, frozen=True):
    """One condition of a pod or node, such as ``PodScheduled`` or ``Ready``."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class Status(Struct, rename="camel", frozen=True):
    """What the cluster says of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []


class Owner(Struct, frozen=True):
    """What made a pod."""

    uid: str = ""


class Metadata(Struct, rename="camel", frozen=True):
    """Names and labels of a pod; times as RFC 3339 in UTC, which sort as text."""

    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[Owner] = []


class Spec(Struct, rename="camel", frozen=True):
    """What a pod was asked to be."""

    containers: list[Container] = []
    node_name: str = ""


class Pod(Struct, frozen=True):
    """One pod."""

    metadata: Metadata
    spec: Spec = Spec()
    status: Status = Status()

    @property
    def name(self) -> str:
        """Its name, by which a person knows it."""
        return self.metadata.name

    def place(self) -> tuple[int, tuple[int, ...], list[str | int]]:
        """What sorts pods as most launchers number their ranks: masters first, then by index."""
        labels = self.metadata.labels
        roles = {labels.get(key, "").lower() for key in _ROLES}
        indices = [labels.get(key, self.metadata.annotations.get(key, "")) for key in _INDICES]
        known = tuple(number_in(index) for index in indices if index)
        return (0 if roles & _FIRST else 1, known, _natural(self.name))

    def status_of(self, container: str) -> ContainerStatus:
        """The status of a container; an empty one where the cluster has none."""
        every = self.status.container_statuses
        return next((s for s in every if s.name == container), ContainerStatus(container))


class NodeStatus(Struct, frozen=True):
    """What the cluster says of a node."""

    conditions: list[Condition] = []


class Node(Struct, frozen=True):
    """One node of the cluster."""

    metadata: Metadata
    status: NodeStatus = NodeStatus()


class _List(Struct):
    items: list[Pod] = []


class _Nodes(Struct):
    items: list[Node] = []


def read(text: str) -> list[Pod]:
    """The pods that kubectl printed, one or a list.

    Raises:
        LauncherError: it printed something else.
    """
    try:
        listed = msgspec.json.decode(text, type=_List)
        if listed.items or '"items"' in text:
            return listed.items
        return [msgspec.json.decode(text, type=Pod)]
    except msgspec.DecodeError as error:
        raise LauncherError(f"kubectl printed no list of pods: {error}") from error


def read_nodes(text: str) -> list[Node]:
    """The nodes that kubectl printed, one or a list; none where it printed something else."""
    try:
        if '"items"' in text:
            return msgspec.json.decode(text, type=_Nodes).items
        return [msgspec.json.decode(text, type=Node)]
    except msgspec.DecodeError:
        return []


def in_order(pods: list[Pod]) -> list[Pod]:
    """The pods in the order of their ranks, without those that have been replaced."""
    return sorted((p for p in pods if not _replaced(p, pods)), key=Pod.place)


def _replaced(pod: Pod, pods: list[Pod]) -> bool:
    """Whether a newer pod of the same owner, and of the same place in it, has taken over."""
    if pod.status.phase not in ("Failed", "Succeeded") and not pod.metadata.deletion_timestamp:
        return False
    owners = {owner.uid for owner in pod.metadata.owner_references}
    born = pod.metadata.creation_timestamp or ""
    return any(
        (other.metadata.creation_timestamp or "") > born
        and owners & {owner.uid for owner in other.metadata.owner_references}
        and other.place()[:2] == pod.place()[:2]
        for other in pods
    )


def container_of(pod: Pod, wanted: str = "") -> str:
    """The container with the ranks: the one that is `wanted`, else the pod's own default, else the
    one that asks for accelerators or has a rank's variables, else the first.

    The default is the annotation that kubectl itself reads
    (https://kubernetes.io/docs/reference/labels-annotations-taints/). "" where it has not the one
    that is wanted.
    """
    containers = {c.name: c for c in pod.spec.containers}
    if wanted:
        return wanted if wanted in containers else ""
    named = pod.metadata.annotations.get(_DEFAULT_CONTAINER, "")
    if named in containers:
        return named
    for has_ranks in (_asks_for_devices, _has_rank_variables):
        found = [name for name, container in containers.items() if has_ranks(container)]
        if found:
            return found[0]
    return next(iter(containers), "")


def _asks_for_devices(container: Container) -> bool:
    """Devices have a vendor's domain in their name: nvidia.com/gpu, amd.com/gpu, google.com/tpu."""
    asked = {**container.resources.limits, **container.resources.requests}
    return any(re.fullmatch(r"[\w.-]+\.\w+/[\w.-]+", name) for name in asked)


def _has_rank_variables(container: Container) -> bool:
    return any(variable.name in _RANK_VARIABLES for variable in container.env)


def _natural(name: str) -> list[str | int]:
    """worker-2 before worker-10."""
    parts = re.split(r"(\d+)", name)
    return [int(part) if part.isdecimal() and part.isascii() else part for part in parts]
