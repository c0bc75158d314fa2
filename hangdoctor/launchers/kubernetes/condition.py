"""Why a pod cannot be asked, from what the cluster says of it: a `PodTrouble` in words, and whether
its ranks have ended or have never begun.

Phases, reasons and conditions: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from .pods import ContainerStatus, Ended, Pod, read_nodes

Kind = Literal["not_started", "ended", "lost"]
_SIGNALLED = 128  # a shell's and a container runtime's exit code of a process that a signal ended
_SIGKILL = 9


class PodTrouble(Struct, frozen=True):
    """Why a pod cannot be asked."""

    kind: Kind
    why: str
    exit_code: int | None = None  # of its container; a negative number is the signal that ended it
    out_of_memory: bool = False


def not_ready(nodes: str) -> dict[str, str]:
    """{node: why} of those that are not ready, of what ``kubectl get nodes -o json`` printed.

    https://kubernetes.io/docs/reference/node/node-status/#condition
    """
    found: dict[str, str] = {}
    for node in read_nodes(nodes):
        for condition in node.status.conditions:
            if condition.type == "Ready" and condition.status != "True":
                what = f"node {node.metadata.name} is NotReady"
                found[node.metadata.name] = sentence(what, condition.message or condition.reason)
    return found


def is_suspect(pod: Pod) -> bool:
    """Whether a pod that is said to run may be on a node that is not ready: then the cluster takes
    its own `Ready` away.
    """
    ready = [c.status for c in pod.status.conditions if c.type == "Ready"]
    return bool(ready) and ready[0] != "True"


def trouble_of(pod: Pod, container: str) -> PodTrouble | None:
    """What keeps this container from being asked; None where it runs."""
    status, one = pod.status, pod.status_of(container)
    if status.reason in ("Evicted", "Preempting", "NodeShutdown", "Terminated", "NodeAffinity"):
        return PodTrouble("ended", sentence(f"the pod was ended: {status.reason}", status.message))
    if status.phase == "Unknown" or status.reason == "NodeLost":
        return PodTrouble("lost", sentence(f"node {_node(pod)} is lost", status.message))
    if one.state.terminated is not None:
        return _ended(one.state.terminated, container)
    if one.state.waiting is not None:
        return _waiting(pod, one, container)
    if one.state.running is not None:
        return None
    if status.phase in ("Failed", "Succeeded"):
        why = sentence(f"the pod has ended ({status.phase})", status.reason or status.message)
        return PodTrouble("ended", why)
    return _pending(pod)


def _ended(ended: Ended, container: str, before: str = "") -> PodTrouble:
    code = ended.exit_code
    if code > _SIGNALLED:
        code = _SIGNALLED - code
    if ended.signal:
        code = -ended.signal
    out_of_memory = ended.reason == "OOMKilled"
    if out_of_memory:
        code = -_SIGKILL
    reason = f"{ended.reason}, " if ended.reason else ""
    what = f"container {container} has ended: {reason}exit code {ended.exit_code}"
    why = sentence(f"{before}{what}", ended.message)
    return PodTrouble("ended", why, code, out_of_memory)


def _waiting(pod: Pod, one: ContainerStatus, container: str) -> PodTrouble:
    """A container that is not up (again)."""
    waiting = one.state.waiting
    assert waiting is not None
    reason = waiting.reason or "waiting"
    last = one.last_state.terminated
    if last is not None:
        times = f", restarted {one.restart_count} times" if one.restart_count else ""
        return _ended(last, container, f"{reason}{times}; ")
    stuck = _init_trouble(pod)
    if stuck:
        return PodTrouble("not_started", stuck)
    why = f"container {container} has not started: {reason}"
    return PodTrouble("not_started", sentence(why, waiting.message))


def _init_trouble(pod: Pod) -> str:
    """Which init container is not through, "" where all are."""
    for one in pod.status.init_container_statuses:
        if one.state.running is not None:
            return f"its init container {one.name} is still running"
        ended = one.state.terminated
        if ended is not None and ended.exit_code:
            return f"its init container {one.name} failed: exit code {ended.exit_code}"
        waiting = one.state.waiting
        if waiting is not None and waiting.reason not in ("", "PodInitializing"):
            return f"its init container {one.name} cannot start: {waiting.reason}"
    return ""


def _pending(pod: Pod) -> PodTrouble:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            why = f"Pending: {condition.reason or 'not scheduled'}"
            return PodTrouble("not_started", sentence(why, condition.message))
    where = f" on node {pod.spec.node_name}" if pod.spec.node_name else ""
    why = f"{pod.status.phase or 'Pending'}{where}: its container has not started"
    return PodTrouble("not_started", sentence(why, pod.status.message))


def _node(pod: Pod) -> str:
    return pod.spec.node_name or "of the pod"


def sentence(what: str, more: str) -> str:
    """What is known and, in brackets, what the cluster says of it: on one line and not too long."""
    told = " ".join(more.split())[:200].rstrip(". ")
    return f"{what} ({told})" if told else what
