"""An ephemeral container beside the ranks of a pod: with their processes, a capability that theirs
lack, and an image of its own.

https://kubernetes.io/docs/tasks/debug/debug-application/debug-running-pod/#ephemeral-container
It cannot be taken away; its only process ends by itself.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from ...errors import LauncherError
from .. import gather
from ..remote import Command, run_all
from ..slurm_job import clean_environment
from .kubectl import Kubectl
from .pods import ContainerStatus

_MADE_S = 10.0
_UP_S = 45.0  # to pull the image
_ASK_S = 10.0
_LIVES_S = 900  # then it ends


class _Status(Struct, rename="camel"):
    ephemeral_container_statuses: list[ContainerStatus] = []


class _Metadata(Struct):
    name: str


class _Pod(Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


class _Pods(Struct):
    items: list[_Pod] = []


def start(kubectl: Kubectl, targets: Sequence[tuple[str, str]], image: str) -> str:
    """Start one beside each (pod, container); their name, the same in all pods.

    Raises:
        LauncherError: one of them does not run, and why.
    """
    name = f"hangdoctor-{secrets.token_hex(3)}"
    commands = [
        Command(pod, kubectl.argv(*_words(pod, container, image, name)))
        for pod, container in targets
    ]
    deadline = time.monotonic() + _MADE_S
    for outcome in run_all(commands, deadline, clean_environment(os.environ)):
        if outcome.code != 0:
            said = gather.last_words(outcome.errors) or "kubectl did not answer"
            raise LauncherError(
                f"no debug container could be added to pod {outcome.node}: {said}",
                "You need the right to patch pods/ephemeralcontainers. Without --debug-image "
                "hangdoctor runs in the container of the ranks.",
            )
    _wait(kubectl, {pod for pod, _ in targets}, name)
    return name


def _words(pod: str, container: str, image: str, name: str) -> list[str]:
    """Profile `general` adds SYS_PTRACE (KEP-1441)."""
    flags = [
        f"--image={image}",
        f"--target={container}",
        "--profile=general",
        f"--container={name}",
    ]
    return ["debug", pod, *flags, "--attach=false", "--quiet", "--", "sleep", str(_LIVES_S)]


def _wait(kubectl: Kubectl, pods: set[str], name: str) -> None:
    end = time.monotonic() + _UP_S
    left = set(pods)
    why = ""
    while left:
        if time.monotonic() > end:
            pod = min(left)
            raise LauncherError(
                f"the debug container of pod {pod} does not run after {_UP_S:.0f} s{why}",
                f"See why: {kubectl.shown('describe pod', pod)}",
            )
        listed = kubectl.ask(["get", "pods", "-o", "json"], _ASK_S)
        for item in msgspec.json.decode(listed, type=_Pods).items:
            for one in item.status.ephemeral_container_statuses:
                if one.name == name and one.state.running is not None:
                    left.discard(item.metadata.name)
                elif one.name == name and one.state.waiting is not None:
                    why = f" ({one.state.waiting.reason})"
        if left:
            time.sleep(0.3)
