"""The flags that choose the nodes of a job, for every verb that works on nodes.

A new way to reach nodes is added here once: its flag in `reach_flags`, its name in `REACHES`, and
its `Reach` in `reach_of`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import UsageError
from .k8s_target import k8s_flags, k8s_reach
from .shared_flags import Command, Flag, together

if TYPE_CHECKING:
    from ..launchers.reach import Reach

# {parameter: how a person writes it} of the flags that `reach_of` understands.
REACHES = {
    "hostfile": "--hostfile F",
    "pbs": "--pbs [JOBID]",
    "k8s": "--k8s JOB",
    "ray": "--ray [ADDRESS]",
    "template": "--exec TEMPLATE --hosts LIST",
}


THIS_JOB = "this"  # the value of --pbs without one


def reach_flags(command: Command) -> Command:
    """The flags of `REACHES`."""
    return together(_flags(k8s_flags()))(command)


def reach_flags_beside_n(command: Command) -> Command:
    """The same for a verb whose -n means something else."""
    return together(_flags(k8s_flags(short=False)))(command)


def _flags(of_k8s: list[Flag]) -> list[Flag]:
    return [
        click.option(
            "--hostfile",
            metavar="F",
            type=click.Path(),
            help="The hosts in file F, one per line (`host [slots=n]`), reached by ssh.",
        ),
        click.option(
            "--pbs",
            metavar="[JOBID]",
            is_flag=False,
            flag_value=THIS_JOB,
            help="The nodes of a running PBS job, by qstat and ssh; without JOBID of this one, by mpiexec.",
        ),
        click.option(
            "--ray",
            metavar="[ADDRESS]",
            is_flag=False,
            flag_value="auto",
            help="The nodes of a Ray cluster that train, by one Ray task each (default: the cluster of this host).",
        ),
        click.option(
            "--exec",
            "template",
            metavar="TEMPLATE",
            help="The hosts of --hosts, reached by this command: 'ssh -J gate {host}', 'docker exec {host}'.",
        ),
        click.option(
            "--hosts",
            metavar="LIST",
            help="Names for the {host} of --exec, as in n[1-8],login.",
        ),
        *of_k8s,
    ]


def one_target(flags: Mapping[str, object], others: Mapping[str, str], needed: bool = True) -> str:
    """The parameter of the one target that the flags name; "" where none is and none is needed.

    `others` are the verb's own targets, as in `REACHES`, and come first in its advice.

    Raises:
        UsageError: more than one target, or none where one is needed.
    """
    words = {**others, **REACHES}
    named = [name for name in words if flags.get(name)]
    if bool(flags.get("hosts")) != bool(flags.get("template")):
        raise UsageError(
            "--exec and --hosts are needed together",
            "For example: --exec 'ssh -J gate {host}' --hosts n[1-8]",
        )
    if len(named) == 1 or (not named and not needed):
        return "".join(named)
    raise UsageError(
        "more than one target was given" if named else "no target was given",
        f"Choose one of {_listed(list(words.values()))}.",
    )


# {parameter: its flag} of the targets, and of what goes with them.
_FLAGS = {
    "hostfile": "--hostfile",
    "pbs": "--pbs",
    "ray": "--ray",
    "template": "--exec",
    "hosts": "--hosts",
    "k8s": "--k8s",
    "namespace": "--namespace",
    "container": "--container",
    "kube_context": "--context",
    "python": "--python",
}
_WITHOUT_VALUE = {"pbs": THIS_JOB, "ray": "auto"}


def target_words(flags: Mapping[str, object]) -> list[str]:
    """The words of a command line that choose the same nodes."""
    words = []
    for name, flag in _FLAGS.items():
        value = str(flags.get(name) or "")
        if value:
            words += [flag] if _WITHOUT_VALUE.get(name) == value else [flag, value]
    return words


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + f" and {words[-1]}"


def reach_of(name: str, flags: Mapping[str, object]) -> Reach:
    """What reaches the nodes of the target `name`, one of `REACHES`."""
    python = str(flags.get("python") or "")
    return _MAKERS[name](flags, python)


def _hostfile(flags: Mapping[str, object], python: str) -> Reach:
    from ..launchers.ssh import SshReach

    shell = str(flags.get("remote_shell") or "ssh")
    return SshReach(Path(str(flags["hostfile"])), shell, python)


def _pbs(flags: Mapping[str, object], python: str) -> Reach:
    from ..launchers.pbs import PbsReach
    from ..launchers.pbs_job import PbsJobReach, here

    job = str(flags["pbs"])
    if job == THIS_JOB or here(job, os.environ):
        return PbsReach(python)
    return PbsJobReach(job, python)


def _ray(flags: Mapping[str, object], python: str) -> Reach:
    from ..launchers.ray_reach import RayReach

    return RayReach(str(flags["ray"]), python, float(str(flags.get("timeout") or 20)))


def _template(flags: Mapping[str, object], python: str) -> Reach:
    from ..launchers.template import TemplateReach

    return TemplateReach(str(flags["template"]), str(flags["hosts"]), python)


_MAKERS: dict[str, Callable[[Mapping[str, object], str], Reach]] = {
    "hostfile": _hostfile,
    "pbs": _pbs,
    "k8s": k8s_reach,
    "ray": _ray,
    "template": _template,
}
