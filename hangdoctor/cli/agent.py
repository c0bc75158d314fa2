"""`hangdoctor agent`: runs beside the ranks of a node."""

from __future__ import annotations

import base64
import binascii
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..errors import UsageError
from ..probe import folder as folders
from ..probe import retention
from ..readers.node import CaptureOptions
from .shared_flags import seconds

if TYPE_CHECKING:  # asyncio and sockets are not needed for the help text
    from ..agents.node_agent import AgentOptions

_TIDY_S = 2.0


@click.command("agent")
@click.option(
    "--once",
    "once",
    metavar="OPTIONS",
    help="Capture this node once and exit; `hangdoctor dump` passes OPTIONS.",
)
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(),
    help="The job's folder on the shared file system, with the collector's address and keys.",
)
@click.option(
    "--collector",
    default="",
    metavar="ADDRESS",
    help="Address of the collector (default: HANGDOCTOR_COLLECTOR, else the one in the folder).",
)
@click.option(
    "--via",
    default="",
    metavar="NAME",
    help="Report to this collector in a tree of collectors (`collect --parent auto --name NAME`).",
)
@click.option(
    "--insecure", is_flag=True, help="Do not encrypt; only for tcp on the loopback and for ipc."
)
@click.option("--jobid", default="", metavar="J[.STEP]", help="Only ranks of this Slurm job.")
@click.option(
    "--job", default="", metavar="KEY", help="Only ranks of this job, by its key or a part of it."
)
@click.option(
    "--node",
    default="",
    metavar="NAME",
    help="Name of this node (default: Slurm's name, else the host name).",
)
@seconds(
    "--interval",
    default=1.0,
    least=0.1,
    most=60,
    help="Seconds between two samples of the ranks.",
)
@seconds(
    "--linger",
    default=60.0,
    help="Exit S seconds after the last rank has ended.",
)
@click.option(
    "--spool",
    metavar="DIR",
    type=click.Path(),
    help="Folder for messages that cannot be sent yet (default: in TMPDIR).",
)
@click.option(
    "--while-heard",
    is_flag=True,
    hidden=True,
    help="Exit when the standard error is read no more; for an agent that a remote shell starts.",
)
def command(once: str | None, **flags: Any) -> None:
    """Sample the ranks of this node and report them to the collector.

    With --once (used by `hangdoctor dump`) it captures its node, prints the capture and exits.
    Otherwise it runs until SIGTERM or the end of its job, and captures when the collector asks.
    `hangdoctor sidecar` starts one on each node.
    """
    if once is None:
        _stay(flags)
        return
    try:
        options = msgspec.json.decode(base64.urlsafe_b64decode(once), type=CaptureOptions)
    except (binascii.Error, msgspec.DecodeError) as error:
        raise UsageError(
            f"--once takes the options that `hangdoctor dump` passes: {error}"
        ) from error
    from ..agents import oneshot

    oneshot.main(options)


def _stay(flags: dict[str, Any]) -> None:
    from ..agents import node_agent
    from ..launchers.slurm_job import parse_job

    job, step = parse_job(flags["jobid"]) if flags["jobid"] else ("", "")
    _tidy()
    try:
        node_agent.main(_options(flags, job, step))
    finally:
        _tidy()  # the job has ended, perhaps by a signal


def _tidy() -> None:
    for base in folders.places():
        retention.tidy(base, time.time_ns(), _TIDY_S)


def _options(flags: dict[str, Any], job: str, step: str) -> AgentOptions:
    from ..agents.node_agent import AgentOptions

    return AgentOptions(
        folder=Path(flags["folder"]) if flags["folder"] else None,
        collector=flags["collector"],
        via=flags["via"],
        insecure=flags["insecure"],
        slurm_job=job,
        slurm_step=step,
        job=flags["job"],
        node=flags["node"],
        interval_s=flags["interval"],
        linger_s=flags["linger"],
        spool=Path(flags["spool"]) if flags["spool"] else None,
        while_heard=flags["while_heard"],
    )
