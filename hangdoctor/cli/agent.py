"""`hangdoctor agent`: what runs beside the ranks of a node."""

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

if TYPE_CHECKING:  # asyncio and sockets are not needed for the help text
    from ..agents.node_agent import AgentOptions

_TIDY_S = 2.0


@click.command("agent")
@click.option(
    "--once",
    "once",
    metavar="OPTIONS",
    help="Capture this node once; OPTIONS come from `hangdoctor dump`.",
)
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(),
    help="The job's folder on the shared file system: address and keys.",
)
@click.option(
    "--collector",
    default="",
    metavar="ADDRESS",
    help="The collector (default: HANGDOCTOR_COLLECTOR, or the folder).",
)
@click.option(
    "--via",
    default="",
    metavar="NAME",
    help="Report to this collector of the tree (`collect --parent auto --name NAME`).",
)
@click.option(
    "--insecure", is_flag=True, help="Plaintext, without keys: tcp on the loopback or ipc only."
)
@click.option("--jobid", default="", metavar="J[.STEP]", help="Ranks of this Slurm job only.")
@click.option(
    "--job", default="", metavar="KEY", help="Ranks of this job only, by its key or a part of it."
)
@click.option(
    "--node",
    default="",
    metavar="NAME",
    help="Name of this node (default: Slurm's, else the host's).",
)
@click.option(
    "--interval",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.1, 60),
    metavar="S",
    help="Between two looks.",
)
@click.option(
    "--linger",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0),
    metavar="S",
    help="End so long after the last rank.",
)
@click.option(
    "--spool",
    metavar="DIR",
    type=click.Path(),
    help="Where to keep what cannot be sent (default: in TMPDIR).",
)
def command(once: str | None, **flags: Any) -> None:
    """The node agent: looks at the ranks of this node and tells the collector.

    With --once, as `hangdoctor dump` starts it, it captures its node, prints its report and ends. Otherwise it runs until
    SIGTERM or until its job has gone, and answers the collector's wish for a capture. One a node: `hangdoctor sidecar`.
    """
    if once is None:
        _stay(flags)
        return
    try:
        options = msgspec.json.decode(base64.urlsafe_b64decode(once), type=CaptureOptions)
    except (binascii.Error, msgspec.DecodeError) as error:
        raise UsageError(f"--once takes the options that a launcher made: {error}") from error
    from ..agents import oneshot

    oneshot.main(options)


def _stay(flags: dict[str, Any]) -> None:
    from ..agents import node_agent
    from ..launchers.slurm import parse_job

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
    )
