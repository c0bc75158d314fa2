"""`hangdoctor sidecar`: starts agents on every node of a running job, and the collector here."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from ..errors import LauncherError, UsageError
from ..launchers.kept_agents import KeptAgents, local
from ..launchers.reach import Reach, site_of, staying
from ..launchers.remote import Command
from ..launchers.slurm import SlurmLauncher
from ..launchers.slurm_job import clean_environment, parse_job
from ..model.start_up import Launch
from ..readers import job_choice, job_words, launch_file
from ..sidecar.wiring import collect
from ..text.job_names import short_job
from ..text.ranges import format_ranks
from ..transport import address, keys
from ..transport.folder_lock import only_collector
from . import complete, pipes
from .k8s_target import followed
from .targets import THIS_JOB, one_target, reach_flags, reach_of
from .unused_folder import Use, unless_used
from .watch_flags import watch_flags

_LINGER_S = 60.0  # after the last rank: a launcher may start ranks again


@click.command("sidecar")
@click.option(
    "--jobid",
    metavar="J[.STEP]",
    shell_complete=complete.job_ids,
    help="A running Slurm job; starts one step on each of its nodes.",
)
@reach_flags
@click.option("--local", "here", is_flag=True, help="Only this host.")
@click.option(
    "--job",
    default="",
    metavar="KEY",
    shell_complete=complete.jobs_here,
    help="The job, if a host runs several, by its name, its script, or a process id (default: your newest).",
)
@watch_flags
@click.option(
    "--python",
    "python",
    default="",
    metavar="PATH",
    help="Python on the nodes that can import hangdoctor (default: the Python running this).",
)
def command(**flags: Any) -> None:
    """Watch a running job: one agent on each node, and the collector in this process.

    Detects stalls, captures, diagnoses and saves incidents. Ends with the job or with Ctrl-C
    and does not change the job. Choose one target: --jobid, --hostfile, --pbs, --k8s, --ray,
    --exec with --hosts, or --local.
    """
    target = one_target(flags, {"here": "--local", "jobid": "--jobid J"})
    if target == "here":
        flags["job"] = _job_here(str(flags["job"]))
    folder = _folder(flags)
    with unless_used(folder) as use, only_collector(folder):
        _watch(folder, target, flags, use)


def _watch(folder: Path, target: str, flags: dict[str, Any], use: Use) -> None:
    """Run agents and collector until the job ends; notes whether the folder is worth keeping."""
    keys.make(folder)
    words = ["--folder", str(folder), "--linger", f"{_LINGER_S:.0f}"]
    if flags["job"]:
        words += ["--job", str(flags["job"])]
    commands, reach = _commands(target, flags, words)
    follow = followed(reach, words)
    agents = KeptAgents(
        commands,
        clean_environment(os.environ),
        keys.make_folder(folder / "logs"),
        _end,
        follow=follow,
    )
    agents.start()
    try:
        nodes = [command.node for command in commands]
        launch_file.write(folder, Launch(nodes=len(nodes), names=tuple(nodes)))
        more: dict[str, object] = {
            "insecure": False,
            "lonely": 10.0,
            "dismiss": True,
            "linger": _LINGER_S,
        }
        more |= {"follow": follow, "site": site_of(reach)}
        use.kept = collect(folder, {**flags, **more, "nodes": nodes})
    finally:
        agents.stop()
    if agents.trouble:
        use.kept = True
        raise LauncherError(agents.trouble, f"See the agents' logs in {folder / 'logs'}.")


def _job_here(wanted: str) -> str:
    """The key of the job to watch, under which its state is kept: of the one that `wanted` names,
    else of the one most likely meant; `wanted` before there is one. Prints which.

    A sidecar may be started before its job. It prints that it waits, since a name can be misspelt.
    """
    jobs = job_choice.all_here()
    found = job_choice.named(jobs, wanted) if wanted else jobs
    if not found:
        named = f" of job {wanted}" if wanted else ""
        pipes.say(
            f"hangdoctor: waiting for ranks{named}; {job_words.here_now(jobs)}",
            err=True,
        )
        return wanted
    job = job_choice.preferred(found)
    pids = format_ranks(found.pid for found in job.ranks)
    taken = job_choice.choice(job, jobs, wanted)
    pipes.say(f"hangdoctor: watching processes {pids} of job {taken}", err=True)
    return job_choice.key_of(wanted, jobs) or job.key


def _end() -> None:
    """End like on SIGTERM: the collector saves what it has and exits."""
    os.kill(os.getpid(), signal.SIGTERM)


def _folder(flags: dict[str, object]) -> Path:
    if flags["folder"]:
        return Path(str(flags["folder"])).absolute()
    return address.job_folder(_folder_name(flags))


def _folder_name(flags: dict[str, object]) -> str:
    if flags["jobid"]:
        return f"slurm-{flags['jobid']}"
    if flags["pbs"]:
        this_job = os.environ.get("PBS_JOBID", "job")
        return f"pbs-{this_job if flags['pbs'] == THIS_JOB else flags['pbs']}"
    if flags["k8s"]:
        return f"k8s-{flags['namespace'] or 'default'}-{flags['k8s']}"
    return local_folder(str(flags["job"]))


def local_folder(job: str) -> str:
    """The name of the folder of a job on this host."""
    return f"{short_job(job) or 'job'}-{os.uname().nodename}"


def _commands(
    target: str, flags: dict[str, object], words: list[str]
) -> tuple[list[Command], Reach | None]:
    """The command for each node, and what reaches the nodes where that is a `Reach`.

    Raises:
        UsageError: a flag that does not go with this target.
        LauncherError: the job cannot be reached.
    """
    python = str(flags["python"])
    if target == "jobid":
        job, step = parse_job(str(flags["jobid"]))
        return SlurmLauncher(job, step, python).stay(words), None
    if target != "here":
        reach = reach_of(target, flags)
        return staying(reach, words), reach
    if python and python != sys.executable:
        raise UsageError(
            "--python cannot be used with --local",
            "Leave it out: --local uses the Python running this.",
        )
    return local(words), None
