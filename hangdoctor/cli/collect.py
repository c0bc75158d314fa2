"""`hangdoctor collect`: the collector."""

from __future__ import annotations

import os
from typing import Any

import click

from ..errors import UsageError
from ..sidecar.wiring import choose_folder, collect, relay, watch_flags

__all__ = ["choose_folder", "command"]


@click.command("collect")
@click.option(
    "--job",
    default="",
    metavar="NAME",
    help="Use the default folder of this job: ~/.hangdoctor/jobs/NAME.",
)
@watch_flags
@click.option(
    "--insecure", is_flag=True, help="Plaintext, without keys: tcp on the loopback or ipc only."
)
@click.option(
    "--lonely",
    default=0.0,
    metavar="S",
    type=click.FloatRange(0),
    help="End so long after the last agent has left.",
)
@click.option("--parent", default="", metavar="ADDRESS|auto",
              help="Pass all on to this collector (auto: the first one of the folder), as a node of a tree.")  # fmt: skip
@click.option(
    "--name",
    default="",
    metavar="NAME",
    help="Of a node of the tree; agents choose it by --via NAME (default: this host).",
)
def command(folder: str | None, job: str, parent: str, name: str, **flags: Any) -> None:
    """The collector: hears the agents, watches for a stall, captures, diagnoses and keeps the incident.

    It needs no timeout: it learns how long the job goes without progress. SIGUSR1 captures now. Incidents are kept in the
    folder: hangdoctor incidents list --folder DIR.

    With --parent it is a node of a tree: agents (or further collectors) report to it, it merges what changed and passes it
    on, hands requests for captures down and the answers up. It makes no verdict itself.
    """
    place = choose_folder(folder, job)
    if not parent:
        if name:
            raise UsageError(
                "--name is for a node of a tree", "Name the collector above it, too: --parent auto"
            )
        collect(place, flags)
        return
    if flags["config"] or flags["once"] or flags["web"]:
        raise UsageError(
            "a node of a tree makes no verdict",
            "Give --config, --once and --web to the first collector.",
        )
    relay(place, name or os.uname().nodename.split(".")[0], parent, flags)
