"""What a pod lacks where py-spy was refused, as the lines to add to its manifest.

https://kubernetes.io/docs/tasks/configure-pod-container/security-context/ and ptrace(2), "Ptrace
access mode checking" and "/proc/sys/kernel/yama/ptrace_scope".
"""

from __future__ import annotations

from collections.abc import Sequence

from ...model.capture import JobCapture, NodeCapture
from ...readers.pyspy import REFUSED
from ...text.ranges import format_hosts
from .in_pod import Found

ADD = 'securityContext: {capabilities: {add: ["SYS_PTRACE"]}}'


def refused(capture: JobCapture) -> list[str]:
    """The nodes with ranks that py-spy was not permitted to read."""
    return [node.node for node in capture.nodes if _is_refused(node)]


def _is_refused(node: NodeCapture) -> bool:
    samples = [sample for rank in node.ranks for sample in rank.samples]
    return any(sample.stack_error.startswith(REFUSED) for sample in samples)


def note(pods: Sequence[str], container: str, found: Found) -> str:
    """What to change, for pods that have the same container of the same image."""
    setting = f", kernel.yama.ptrace_scope {found.scope}" if found.scope else ""
    uid = found.uid or "0"
    lacking = (
        f"py-spy may not read the ranks in {format_hosts(pods)} (uid {uid}{setting}), "
        "so there are no stacks of them and the verdict is by /proc alone."
    )
    return f"{lacking} {_cure(container, uid, found.scope)}"


def _cure(container: str, uid: str, scope: str) -> str:
    if scope == "3":
        return "ptrace is off on that node until its next boot: set kernel.yama.ptrace_scope=0 in /etc/sysctl.d there."
    if uid == "0":
        return f"Add to container {container} in the pod template, for the next start: {ADD}"
    # Capabilities that are added do not reach the processes of a user other than root.
    return (
        f"For container {container}, which does not run as root, a capability is not enough: "
        "set kernel.yama.ptrace_scope=0 on the nodes, or run it as root with: "
        f"{ADD[:-1]}, runAsUser: 0}}"
    )
