"""The flags that choose the pods of a job on Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from .shared_flags import Flag

if TYPE_CHECKING:
    from ..launchers.kept_agents import Follows
    from ..launchers.reach import Reach


def k8s_flags(short: bool = True) -> list[Flag]:
    """`--k8s`, and what goes with it; without `short` the verb has a -n of its own."""
    return [
        click.option(
            "--k8s",
            metavar="JOB",
            help="The pods of a job on Kubernetes, reached by kubectl: KIND/NAME (pytorchjob/bloom), NAME, or a label selector.",
        ),
        click.option(
            "--namespace",
            *(["-n"] if short else []),
            default="",
            metavar="NS",
            help="Namespace of the pods of --k8s (default: that of kubectl's context).",
        ),
        click.option(
            "--container",
            "-c",
            default="",
            metavar="NAME",
            help="Container of each pod of --k8s that has the ranks (default: kubectl's default, else the one with devices or a rank's variables).",
        ),
        click.option(
            "--context",
            "kube_context",
            default="",
            metavar="NAME",
            help="kubectl's context for --k8s (default: the current one).",
        ),
        click.option(
            "--debug-image",
            default="",
            metavar="IMAGE",
            help="Work from an ephemeral container of IMAGE beside the ranks of --k8s: for images without a shell, or that forbid ptrace.",
        ),
    ]


def k8s_reach(flags: Mapping[str, object], python: str) -> Reach:
    """What reaches the pods that the flags name.

    Raises:
        UsageError: they name no job.
    """
    from ..launchers.kubernetes.kubectl import Kubectl
    from ..launchers.kubernetes.reach import K8sReach, Target
    from ..launchers.kubernetes.selectors import parse

    parse(str(flags["k8s"]))
    target = Target(
        str(flags["k8s"]),
        container=str(flags["container"] or ""),
        python=python,
        debug_image=str(flags["debug_image"] or ""),
    )
    kubectl = Kubectl(str(flags["namespace"] or ""), str(flags["kube_context"] or ""))
    return K8sReach(target, kubectl)


def followed(reach: Reach | None, flags: Sequence[str]) -> Follows | None:
    """What follows the pods of a job, in which agents with these flags run; None for nodes that are
    always the same.
    """
    from ..launchers.kubernetes.follow import FollowedPods
    from ..launchers.kubernetes.reach import K8sReach

    return FollowedPods(reach, ["agent", *flags]) if isinstance(reach, K8sReach) else None
