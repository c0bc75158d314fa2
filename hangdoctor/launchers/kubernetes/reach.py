"""The pods of a job on Kubernetes, one `kubectl exec` each; see `launchers.reach.Reach`."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from ..._version import __version__
from ...errors import LauncherError, NoRanksFound, UsageError
from ...model.capture import JobCapture, Site
from ..lost_nodes import Watch
from ..remote import Command, run_all
from ..slurm_job import clean_environment
from ..told_nodes import NodeTold
from . import debug_container, events, in_pod, own_copy, pods, ptrace, selectors, tunnel
from .condition import PodTrouble, is_suspect, not_ready, trouble_of
from .kubectl import Kubectl
from .person import commands_of, container_flag
from .pods import Pod

_LOOK_S = 5.0  # at most, to learn what the pods' images have
_LOOKED_AT = 2  # pods of each image
_FROM_FILE = 'exec "$@" <"$0"'  # kubectl reads the archive
_NODES_S = 3.0
_NAMED = 64  # pods in a command for a person
_GRACE_S = 2.0  # beyond the deadline here, for what runs in a pod


class Target(Struct, frozen=True):
    """What the flags name."""

    wanted: str
    container: str = ""
    python: str = ""
    debug_image: str = ""  # of an ephemeral container to work from, "" for the ranks' own


class K8sReach:
    """The pods of one job."""

    means = "kubectl exec"

    def __init__(self, target: Target, kubectl: Kubectl) -> None:
        self.target = target
        self.kubectl = kubectl
        self._debug = ""  # the name of the ephemeral container, once it runs
        self._known: dict[str, in_pod.Found] | None = None

    def nodes(self) -> list[str]:
        """The names of the pods, in the order of their ranks; looks what their images have, which
        takes time that no agent is to count on.

        Raises:
            UsageError: the target names no kind of job, or no container of the pods.
            LauncherError: kubectl is not here, or cannot.
            NoRanksFound: there is no such pod.
        """
        self._ready()
        return [pod.name for pod in self.pods]

    def commands(self, words: Sequence[str], timeout_s: float) -> list[Command]:
        """One `kubectl exec` for each pod that runs; raises as `nodes`."""
        known = self._ready()
        if _stays(words):
            self._refuse_idle()
            return [self._stay(pod, known[self._image(pod)].python, words) for pod in self.asked]
        limit = timeout_s + _GRACE_S
        return [
            self._become(pod, known[self._image(pod)].python, words, limit) for pod in self.asked
        ]

    def connected(
        self, words: Sequence[str], nodes: Collection[str], reads: bool = True
    ) -> list[Command]:
        """One `kubectl exec -i` for each of these pods that runs; see `launchers.reach.Connects`."""
        known = self._ready()
        pods = [pod for pod in self.asked if pod.name in nodes]
        return [self._connect(pod, known[self._image(pod)].python, words, reads) for pod in pods]

    def addresses(self) -> dict[str, str]:
        """{pod: its IP}: pods do not find each other by their names."""
        return {pod.name: pod.status.pod_ip for pod in self.pods}

    def unasked(self) -> dict[str, str]:
        """{pod: why} of those that do not run."""
        return {name: trouble.why for name, trouble in self.troubles.items()}

    def told(self) -> dict[str, NodeTold]:
        """{pod: what the cluster says of it}, of those that do not run."""
        known = {pod.name: pod for pod in self.pods}
        return {name: self.in_words(known[name], one) for name, one in self.troubles.items()}

    def notes(self, capture: JobCapture) -> list[str]:
        """What pods lack whose ranks py-spy was not permitted to read, once for each image."""
        refused = set(ptrace.refused(capture))
        known = self._ready()
        by_image: dict[str, list[Pod]] = {}
        for pod in self.asked:
            if pod.name in refused:
                by_image.setdefault(self._image(pod), []).append(pod)
        return [
            ptrace.note([p.name for p in alike], self.container(alike[0]), known[image])
            for image, alike in by_image.items()
        ]

    def by_hand(self) -> str:
        """See `launchers.reach.TriedByHand`."""
        first = self.pods[0]
        flag = container_flag(first, self.container(first))
        return self.kubectl.shown("exec {node}", *flag, "-- true")

    def site(self) -> Site:
        """The commands of Kubernetes for these pods; see `launchers.reach.HasSite`."""
        return commands_of(self.kubectl, self.target.wanted, self.pods, self.container)

    def watch(self) -> Watch | None:
        """None: the API server stands between, and a node's own port cannot be reached."""
        return None

    def listed(self) -> list[Pod]:
        """The pods of the job as the cluster has them now; raises as `nodes`, but for `NoRanksFound`."""
        return self._asked_for(selectors.parse(self.target.wanted))

    def part(self, some: Sequence[Pod]) -> K8sReach:
        """The same for these pods alone, all of which run."""
        other = K8sReach(self.target, self.kubectl)
        other.pods, other.troubles = list(some), {}
        return other

    @cached_property
    def pods(self) -> list[Pod]:
        """All pods of the job; raises as `nodes`."""
        found = pods.in_order(self.listed())
        if not found:
            raise NoRanksFound(
                f"there is no pod of {self.target.wanted}{self._in_namespace()}",
                f"See which there are, with their labels: {self.kubectl.shown('get pods --show-labels')}",
            )
        self._refuse_ended(found)
        if not any(pods.container_of(pod, self.target.container) for pod in found):
            names = sorted({c.name for pod in found for c in pod.spec.containers})
            raise UsageError(
                f"no pod has a container {self.target.container}",
                f"Choose one of {', '.join(names)} with -c.",
            )
        return found

    @cached_property
    def asked(self) -> list[Pod]:
        """The pods that run."""
        return [pod for pod in self.pods if pod.name not in self.troubles]

    @cached_property
    def troubles(self) -> dict[str, PodTrouble]:
        """{pod: what keeps it from being asked}."""
        found = {pod.name: trouble_of(pod, self.container(pod)) for pod in self.pods}
        known = {name: trouble for name, trouble in found.items() if trouble is not None}
        known |= self._on_lost_nodes([p for p in self.pods if p.name not in known])
        return events.explained(known, self.kubectl, self.pods)

    def _on_lost_nodes(self, running: Sequence[Pod]) -> dict[str, PodTrouble]:
        """{pod: its trouble}, of those that are said to run on a node that is not ready."""
        suspects = [pod for pod in running if is_suspect(pod) and pod.spec.node_name]
        if not suspects:
            return {}
        names = sorted({pod.spec.node_name for pod in suspects})
        asked = self.kubectl.outcome(["get", "nodes", *names, "-o", "json"], _NODES_S)
        lost = not_ready(asked.output)  # nothing, where the user may not see nodes
        return {
            pod.name: PodTrouble("lost", lost[pod.spec.node_name])
            for pod in suspects
            if pod.spec.node_name in lost
        }

    def _refuse_ended(self, found: Sequence[Pod]) -> None:
        """Raise where there is nothing to capture any more: what is left are the pods' logs."""
        if any(pod.status.phase not in ("Failed", "Succeeded") for pod in found):
            return
        names = " ".join(pod.name for pod in found[:_NAMED])
        raise NoRanksFound(
            f"all {len(found)} pods have ended: {names}",
            f"Diagnose their logs: for p in {names}; do {self.kubectl.shown('logs $p', *container_flag(found[0], self.container(found[0])))}; done | hangdoctor diagnose -",
        )

    def _refuse_idle(self) -> None:
        """Raise where there is no pod that an agent could run in."""
        if self.asked:
            return
        pod, trouble = next(iter(self.troubles.items()))
        raise LauncherError(
            f"no pod of {self.target.wanted} runs: {pod}: {trouble.why}",
            f"See what it lacks: {self.kubectl.shown('describe pod', pod)}",
        )

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

    def container(self, pod: Pod) -> str:
        """The one with the ranks."""
        return pods.container_of(pod, self.target.container)

    def _image(self, pod: Pod) -> str:
        """What pods with the same image have in common."""
        container = self.container(pod)
        asked = next((c.image for c in pod.spec.containers if c.name == container), "")
        return f"{container} {pod.status_of(container).image_id or asked}"

    def _exec(self, pod: Pod, argv: Sequence[str], with_input: bool = False) -> Command:
        flags = ["-i"] if with_input else []
        # A pod is known by its own name, even where it has the host name of its node.
        named = ["env", f"HANGDOCTOR_NODE={pod.name}", *argv]
        container = self._debug or self.container(pod)
        words = ["exec", *flags, pod.name, "-c", container, "--", *named]
        return Command(pod.name, self.kubectl.argv(*words))

    def _become(self, pod: Pod, python: str, words: Sequence[str], limit: float) -> Command:
        """``hangdoctor WORDS`` in a pod: its own, else a copy of this one."""
        if python:
            return self._exec(pod, in_pod.become(python, words, limit))
        path, size = own_copy.archive()
        inner = self._exec(pod, in_pod.unpack_and_become(size, words, limit), with_input=True)
        return Command(pod.name, ["sh", "-c", _FROM_FILE, path, *inner.argv])

    def _connect(self, pod: Pod, python: str, words: Sequence[str], reads: bool) -> Command:
        if not python:
            raise LauncherError(
                f"hangdoctor is not installed in pod {pod.name}, and a copy of this one is not enough here",
                f"Install hangdoctor {__version__} into the image, or name a Python there that has it: --python PATH.",
            )
        inner = in_pod.connected(python, words, reads)
        return self._exec(pod, inner, with_input=True)

    def _stay(self, pod: Pod, python: str, words: Sequence[str]) -> Command:
        """An agent in a pod, which reaches the collector of its folder through kubectl."""
        at = words.index("--folder")
        folder, rest = words[at + 1], [*words[:at], *words[at + 2 :], "--node", pod.name]
        archive = tunnel.NO_ARCHIVE
        if python:
            inner = in_pod.stay(python, rest)
        else:
            archive, size = own_copy.archive()
            inner = in_pod.unpack_and_stay(size, rest)
        exec_ = self._exec(pod, inner, with_input=True).argv
        near = [sys.executable, "-m", tunnel.__name__, folder, archive, *exec_]
        root = str(Path(__file__).resolve().parents[3])
        return Command(pod.name, ["env", f"PYTHONPATH={root}", *near])

    def _ready(self) -> dict[str, in_pod.Found]:
        """{image: what its pods have}, after which the pods can be asked without delay."""
        if self._known is None:
            if self.target.debug_image and self.asked:
                beside = [(pod.name, self.container(pod)) for pod in self.asked]
                self._debug = debug_container.start(self.kubectl, beside, self.target.debug_image)
            self._known = self._look()
            self._refuse_others(self._known)
            if not all(self._known[self._image(pod)].python for pod in self.asked):
                own_copy.archive()
        return self._known

    def in_words(self, pod: Pod, trouble: PodTrouble) -> NodeTold:
        """A pod's trouble, with the command that shows more."""
        see = self.kubectl.shown("describe pod", pod.name)
        if trouble.exit_code is not None:
            see += f" and {self.kubectl.shown('logs', pod.name, *container_flag(pod, self.container(pod)))}"
        return NodeTold(
            trouble.why,
            see,
            ended=trouble.kind == "ended",
            unstarted=trouble.kind == "not_started",
            exit_code=trouble.exit_code,
            out_of_memory=trouble.out_of_memory,
        )

    def _refuse_others(self, known: Mapping[str, in_pod.Found]) -> None:
        """Raise where the copy of this hangdoctor could not run: on another kind of processor."""
        here = platform.machine()
        for pod in self.asked:
            found = known[self._image(pod)]
            if not found.python and found.machine not in ("", here):
                raise LauncherError(
                    f"hangdoctor is not installed in pod {pod.name} ({found.machine}), and this host's ({here}) cannot run there",
                    f"Run this on a host with {found.machine}, or install hangdoctor into the image.",
                )

    def _look(self) -> dict[str, in_pod.Found]:
        """What each image has, by the first of its pods that says so; nothing where none does."""
        if self.target.python:
            there = in_pod.Found(python=self.target.python)
            return {self._image(pod): there for pod in self.asked}
        images: dict[str, list[Pod]] = {}
        for pod in self.asked:
            images.setdefault(self._image(pod), []).append(pod)
        first = [pod for alike in images.values() for pod in alike[:_LOOKED_AT]]
        deadline = time.monotonic() + _LOOK_S
        commands = [self._exec(pod, in_pod.look()) for pod in first]
        answers = run_all(commands, deadline, clean_environment(os.environ))
        heard = {one.node: in_pod.found(one.output) for one in answers}
        known: dict[str, in_pod.Found] = {}
        for image, alike in images.items():
            told = [found for pod in alike if (found := heard.get(pod.name)) is not None]
            known[image] = told[0] if told else in_pod.Found()
        return known


def _stays(words: Sequence[str]) -> bool:
    """Whether this is the agent of a sidecar, which runs as long as its job."""
    return words[:1] == ["agent"] and "--once" not in words


def _is_named(pod: Pod, name: str) -> bool:
    """Whether this is the pod, or a pod of the job, of that name."""
    labels = {*selectors.LABELS.values()}
    return pod.name == name or any(pod.metadata.labels.get(label) == name for label in labels)
