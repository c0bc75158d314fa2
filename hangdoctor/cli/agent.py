"""`hangdoctor agent`: hands over to the `agents` package, after making sure that it is ours."""

from __future__ import annotations

import base64
import binascii
import importlib
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import msgspec

from ..errors import ShadowedPackage, UsageError
from ..probe import folder as folders
from ..probe import retention
from ..readers.node import CaptureOptions

MARKER = "hangdoctor.agents/1"
_TIDY_S = 2.0


def load_agents(module: str) -> ModuleType:
    """Import a module of our `agents` package. By name, since hangdoctor's layers do not know the agents'.

    Raises:
        ShadowedPackage: the `agents` that Python finds is another distribution's.
    """
    package = importlib.import_module("agents")
    if getattr(package, "HANGDOCTOR_AGENTS", None) != MARKER:
        where = getattr(package, "__file__", None) or next(iter(getattr(package, "__path__", ["?"])))
        raise ShadowedPackage(f"the package `agents` that Python finds is not hangdoctor's: {where}")
    return importlib.import_module(f"agents.{module}")


@click.command("agent")
@click.option("--once", "once", metavar="OPTIONS", help="Capture this node once; OPTIONS come from `hangdoctor dump`.")
@click.option(
    "--folder", metavar="DIR", type=click.Path(), help="The job's folder on the shared file system: address and keys."
)
@click.option(
    "--collector", default="", metavar="ADDRESS", help="The collector (default: HANGDOCTOR_COLLECTOR, or the folder)."
)
@click.option(
    "--via", default="", metavar="NAME", help="Report to this collector of the tree (`collect --parent auto --name NAME`)."
)
@click.option("--insecure", is_flag=True, help="Plaintext, without keys: tcp on the loopback or ipc only.")
@click.option("--jobid", default="", metavar="J[.STEP]", help="Ranks of this Slurm job only.")
@click.option("--job", default="", metavar="KEY", help="Ranks of this job only, by its key or a part of it.")
@click.option("--node", default="", metavar="NAME", help="Name of this node (default: Slurm's, else the host's).")
@click.option(
    "--interval", default=1.0, show_default=True, type=click.FloatRange(0.1, 60), metavar="S", help="Between two looks."
)
@click.option(
    "--linger", default=60.0, show_default=True, type=click.FloatRange(0), metavar="S", help="End so long after the last rank."
)
@click.option("--spool", metavar="DIR", type=click.Path(), help="Where to keep what cannot be sent (default: in TMPDIR).")
def command(once: str | None, **flags: object) -> None:
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
    load_agents("oneshot").main(options)


def _stay(flags: dict[str, object]) -> None:
    from ..launchers.slurm import parse_job

    job, step = parse_job(str(flags["jobid"])) if flags["jobid"] else ("", "")
    module = load_agents("node_agent")
    _tidy()
    try:
        module.main(_options(module, flags, job, step))
    finally:
        _tidy()  # the job has ended, perhaps by a signal


def _tidy() -> None:
    for base in folders.places():
        retention.tidy(base, time.time_ns(), _TIDY_S)


def _options(module: Any, flags: dict[str, object], job: str, step: str) -> Any:
    return module.Options(
        folder=Path(str(flags["folder"])) if flags["folder"] else None, collector=str(flags["collector"]), via=str(flags["via"]),
        insecure=bool(flags["insecure"]), slurm_job=job, slurm_step=step, job=str(flags["job"]), node=str(flags["node"]),
        interval_s=flags["interval"], linger_s=flags["linger"], spool=Path(str(flags["spool"])) if flags["spool"] else None,
    )  # fmt: skip
