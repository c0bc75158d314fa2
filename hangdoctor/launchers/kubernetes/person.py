"""The commands of Kubernetes that advice names, as a person types them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...model.capture import Site
from . import selectors
from .kubectl import Kubectl
from .pods import Pod

_FEW = 4  # pods that are named one by one


def commands_of(
    kubectl: Kubectl, wanted: str, pods: Sequence[Pod], container_of: Callable[[Pod], str]
) -> Site:
    """How a person enters the pods of a job, sees what became of them, and restarts them."""
    container = container_of(pods[0])
    chosen = container_flag(pods[0], container)
    restarts = any(pod.metadata.owner_references for pod in pods)
    after = "its controller makes them anew" if restarts else "then apply their manifest again"
    capture = ["hangdoctor dump --k8s", f"'{wanted}'" if " " in wanted else wanted]
    if kubectl.namespace:
        capture.append(f"-n {kubectl.namespace}")
    if kubectl.context:
        capture.append(f"--context {kubectl.context}")
    return Site(
        enter=kubectl.shown("exec -it {node}", *chosen, "-- sh"),
        see=kubectl.shown("describe pod {node}"),
        log=kubectl.shown("logs {node}", *chosen),
        capture=" ".join(capture),
        restart=f"{kubectl.shown('delete pod', *_all(wanted, pods))} ({after})",
        memory=f"resources.limits.memory of container {container}",
    )


def container_flag(pod: Pod, container: str) -> list[str]:
    """What chooses a container, where the pod has several."""
    return [f"-c {container}"] if len(pod.spec.containers) > 1 else []


def _all(wanted: str, pods: Sequence[Pod]) -> list[str]:
    """What names all of these pods, and no other, behind ``kubectl delete pod``."""
    if len(pods) <= _FEW:
        return [pod.name for pod in pods]
    known = selectors.parse(wanted)
    labels = pods[0].metadata.labels
    named = [
        f"{key}={known.name}" for key in selectors.LABELS.values() if labels.get(key) == known.name
    ]
    cluster = labels.get(selectors.RAY_CLUSTER, "")
    of_ray = f"{selectors.RAY_CLUSTER}={cluster}" if known.ray_job and cluster else ""
    selector = known.selector or of_ray or (named[0] if named and known.name else "")
    return [f"-l '{selector}'"] if selector else [pod.name for pod in pods]
