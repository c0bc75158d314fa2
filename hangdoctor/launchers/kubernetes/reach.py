"""The pods of a job on Kubernetes, one `kubectl exec` each; see `launchers.reach.Reach`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct

from ...errors import LauncherError, NoRanksFound, UsageError
from ...text.ranges import format_hosts
from ..lost_nodes import Watch
from ..remote import Command, run_all
from ..slurm_job import clean_environment
from . import in_pod, pods, selectors
from .condition import PodTrouble, trouble_of
from .kubectl import Kubectl
from .pods import Pod

_LOOK_S = 5.0  # at most, to learn what the pods' images have
_LOOKED_AT = 2  # pods of each image
_GRACE_S = 2.0  # beyond the deadline here, for what runs in a pod


class Target(Struct, frozen=True):
    """What the flags name."""

    wanted: str
    container: str = ""
    python: str = ""


class K8sReach:
    """The pods of one job."""

    means = "kubectl exec"

    def __init__(self, target: Target, kubectl: Kubectl) -> None:
        self.target = target
        self.kubectl = kubectl

    def nodes(self) -> list[str]:
        """The names of the pods, in the order of their ranks.

        Raises:
            UsageError: the target names no kind of job, or no container of the pods.
            LauncherError: kubectl is not here, or cannot.
            NoRanksFound: there is no such pod.
        """
        return [pod.name for pod in self.pods]

    def commands(self, words: Sequence[str], timeout_s: float) -> list[Command]:
        """One `kubectl exec` for each pod that runs; raises as `nodes`."""
        asked = [pod for pod in self.pods if pod.name not in self.unasked()]
        pythons = self._pythons(asked, timeout_s)
        limit = timeout_s + _GRACE_S
        return [
            self._exec(pod, in_pod.become(pythons[self._image(pod)], words, limit)) for pod in asked
        ]

    def unasked(self) -> dict[str, str]:
        """{pod: why} of those that do not run."""
        return {name: trouble.why for name, trouble in self.troubles.items()}

    def watch(self) -> Watch | None:
        """None: the API server stands between, and a node's own port cannot be reached."""
        return None

    @cached_property
    def pods(self) -> list[Pod]:
        """All pods of the job; raises as `nodes`."""
        wanted = selectors.parse(self.target.wanted)
        found = pods.in_order(self._asked_for(wanted))
        if not found:
            raise NoRanksFound(
                f"there is no pod of {self.target.wanted}{self._in_namespace()}",
                f"See which there are, with their labels: {self.kubectl.shown('get pods --show-labels')}",
            )
        if not any(pods.container_of(pod, self.target.container) for pod in found):
            names = sorted({c.name for pod in found for c in pod.spec.containers})
            raise UsageError(
                f"no pod has a container {self.target.container}",
                f"Choose one of {', '.join(names)} with -c.",
            )
        return found

    @cached_property
    def troubles(self) -> dict[str, PodTrouble]:
        """{pod: what keeps it from being asked}."""
        found = {pod.name: trouble_of(pod, self._container(pod)) for pod in self.pods}
        return {name: trouble for name, trouble in found.items() if trouble is not None}

    def _asked_for(self, wanted: selectors.Wanted) -> list[Pod]:
        if wanted.pod:
            return pods.read(self.kubectl.ask(["get", "pod", wanted.pod, "-o", "json"]))
        if wanted.name:
            listed = pods.read(self.kubectl.ask(["get", "pods", "-o", "json"]))
            return [pod for pod in listed if _is_named(pod, wanted.name)]
        selector = wanted.selector
        if wanted.ray_job:
            selector = f"{selectors.RAY_CLUSTER}={self._ray_cluster(wanted.ray_job)}"
        return pods.read(self.kubectl.ask(["get", "pods", "-l", selector, "-o", "json"]))

    def _ray_cluster(self, ray_job: str) -> str:
        """The cluster that KubeRay made for a RayJob, which its status names."""
        asked = ["get", "rayjob", ray_job, "-o", "jsonpath={.status.rayClusterName}"]
        name = self.kubectl.ask(asked).strip()
        if not name:
            raise LauncherError(
                f"RayJob {ray_job} has no cluster yet",
                f"See why: {self.kubectl.shown('describe rayjob', ray_job)}",
            )
        return name

    def _in_namespace(self) -> str:
        return f" in namespace {self.kubectl.namespace}" if self.kubectl.namespace else ""

    def _container(self, pod: Pod) -> str:
        return pods.container_of(pod, self.target.container)

    def _image(self, pod: Pod) -> str:
        """What pods with the same image have in common."""
        container = self._container(pod)
        asked = next((c.image for c in pod.spec.containers if c.name == container), "")
        return f"{container} {pod.status_of(container).image_id or asked}"

    def _exec(self, pod: Pod, argv: Sequence[str]) -> Command:
        words = ["exec", pod.name, "-c", self._container(pod), "--", *argv]
        return Command(pod.name, self.kubectl.argv(*words))

    def _pythons(self, asked: Sequence[Pod], timeout_s: float) -> dict[str, str]:
        """{image: the Python to use in its pods}.

        Raises:
            LauncherError: an image has none that can import hangdoctor.
        """
        if self.target.python:
            return {self._image(pod): self.target.python for pod in asked}
        known = self._look(asked, timeout_s)
        lacking = [pod.name for pod in asked if not known[self._image(pod)].python]
        if lacking:
            raise LauncherError(
                f"hangdoctor is not installed in the pods {format_hosts(lacking)}",
                "Install it into the image, or name the Python there that has it: --python PATH.",
            )
        return {image: found.python for image, found in known.items()}

    def _look(self, asked: Sequence[Pod], timeout_s: float) -> dict[str, in_pod.Found]:
        """What each image has, by the first of its pods that says so; `python3` where none does."""
        images: dict[str, list[Pod]] = {}
        for pod in asked:
            images.setdefault(self._image(pod), []).append(pod)
        first = [pod for alike in images.values() for pod in alike[:_LOOKED_AT]]
        deadline = time.monotonic() + min(_LOOK_S, timeout_s / 3)
        commands = [self._exec(pod, in_pod.look()) for pod in first]
        answers = run_all(commands, deadline, clean_environment(os.environ))
        heard = {one.node: in_pod.found(one.output) for one in answers}
        known: dict[str, in_pod.Found] = {}
        for image, alike in images.items():
            told = [found for pod in alike if (found := heard.get(pod.name)) is not None]
            known[image] = told[0] if told else in_pod.Found(python="python3")
        return known


def _is_named(pod: Pod, name: str) -> bool:
    """Whether this is the pod, or a pod of the job, of that name."""
    labels = {*selectors.LABELS.values()}
    return pod.name == name or any(pod.metadata.labels.get(label) == name for label in labels)
