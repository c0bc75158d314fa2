"""`hangdoctor sidecar`: starts agents on every node of a running job, and the collector here."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from ..errors import LauncherError, UsageError
from ..launchers.kept_agents import Beside, local, over_mpiexec, over_ssh
from ..launchers.remote import Command
from ..launchers.slurm import SlurmLauncher, clean_environment, parse_job
from ..launchers.ssh import read_hostfile
from ..readers import discover
from ..sidecar.wiring import collect, watch_flags
from ..text.job_names import short_job
from ..transport import address, keys
from ..transport.folder_lock import only_collector
from . import complete, pipes


@click.command("sidecar")
@click.option(
    "--jobid",
    metavar="J[.STEP]",
    shell_complete=complete.job_ids,
    help="A running Slurm job; starts one step on each of its nodes.",
)
@click.option(
    "--hostfile",
    metavar="F",
    type=click.Path(),
    help="The hosts in file F, one per line, reached by ssh.",
)
@click.option(
    "--pbs", is_flag=True, help="The nodes of this PBS job (PBS_NODEFILE), reached by mpiexec."
)
@click.option("--local", "here", is_flag=True, help="Only this host.")
@click.option(
    "--job",
    default="",
    metavar="KEY",
    shell_complete=complete.jobs_here,
    help="The job, if a host runs several (default: the newest).",
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
    and does not change the job. Choose one target: --jobid, --hostfile, --pbs or --local.
    """
    if flags["here"] and not flags["job"]:
        flags["job"] = _job_here()
    folder = _folder(flags)
    with only_collector(folder):
        _watch(folder, flags)


def _watch(folder: Path, flags: dict[str, Any]) -> None:
    """Run agents and collector until the job ends."""
    keys.make(folder)
    words = ["--folder", str(folder)]
    if flags["job"]:
        words += ["--job", str(flags["job"])]
    if flags["here"]:
        _say_who_is_missing(str(flags["job"]))
    commands = _commands(flags, words)
    agents = Beside(
        commands,
        clean_environment(os.environ),
        keys.make_folder(folder / "logs"),
        _end,
    )
    agents.start()
    try:
        nodes = [command.node for command in commands]
        more = {"insecure": False, "lonely": 10.0, "dismiss": True, "nodes": nodes}
        collect(folder, {**flags, **more})
    finally:
        agents.stop()
    if agents.trouble:
        raise LauncherError(agents.trouble, f"See the agents' logs in {folder / 'logs'}.")


def _job_here() -> str:
    """The key of the newest job on this host, "" before there is one: its state is kept under it."""
    found = discover.find_jobs()
    return found[0].key if found else ""


def _say_who_is_missing(job: str) -> None:
    """A sidecar may be started before its job. It prints that it waits, since a name can be misspelt."""
    found = discover.find_jobs()
    if not any(j.is_named(job) for j in found):
        named = f" of job {job}" if job else ""
        pipes.say(
            f"hangdoctor: waiting for ranks{named}; {discover.here_now([j.key for j in found])}",
            err=True,
        )


def _end() -> None:
    """End like on SIGTERM: the collector saves what it has and exits."""
    os.kill(os.getpid(), signal.SIGTERM)


def _folder(flags: dict[str, object]) -> Path:
    if flags["folder"]:
        return Path(str(flags["folder"])).absolute()
    named = (
        f"slurm-{flags['jobid']}"
        if flags["jobid"]
        else f"pbs-{os.environ.get('PBS_JOBID', 'job')}"
        if flags["pbs"]
        else ""
    )
    return address.job_folder(
        named or f"{short_job(str(flags['job'])) or 'job'}-{os.uname().nodename}"
    )


def _commands(flags: dict[str, object], words: list[str]) -> list[Command]:
    """The command for each node.

    Raises:
        UsageError: no target, or more than one.
        LauncherError: the job cannot be reached.
    """
    named = [name for name in ("jobid", "hostfile", "pbs", "here") if flags[name]]
    if len(named) != 1:
        what = "no target was given" if not named else "more than one target was given"
        raise UsageError(what, "Choose one of --jobid J, --hostfile F, --pbs and --local.")
    python = str(flags["python"])
    if named[0] == "jobid":
        job, step = parse_job(str(flags["jobid"]))
        return SlurmLauncher(job, step, python).stay(words)
    if named[0] == "hostfile":
        return over_ssh(read_hostfile(Path(str(flags["hostfile"]))), words, python)
    if named[0] == "pbs":
        return over_mpiexec(words, python)
    if python and python != sys.executable:
        raise UsageError(
            "--python cannot be used with --local",
            "Leave it out: --local uses the Python running this.",
        )
    return local(words)
