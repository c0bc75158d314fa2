"""`hangdoctor collect`: the collector."""

from __future__ import annotations

import os
from typing import Any

import click

from ..errors import UsageError
from ..sidecar.wiring import choose_folder, collect, relay
from ..transport import address
from ..transport.folder_lock import only_collector
from .shared_flags import seconds
from .unused_folder import unless_used
from .watch_flags import watch_flags

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
    "--insecure", is_flag=True, help="Do not encrypt; only for tcp on the loopback and for ipc."
)
@seconds(
    "--lonely",
    default=0.0,
    show_default=False,
    help="Exit S seconds after the last agent has left (default: never).",
)
@click.option(
    "--parent",
    default="",
    metavar="ADDRESS|auto",
    help="Report to this collector instead of diagnosing (auto: the collector of the folder).",
)
@click.option(
    "--name",
    default="",
    metavar="NAME",
    help="Name of this collector in the tree, for `agent --via NAME` (default: this host).",
)
def command(folder: str | None, job: str, parent: str, name: str, **flags: Any) -> None:
    """Collect from the agents, detect stalls, capture, diagnose and save incidents.

    It needs no timeout: it learns how long this job normally goes without progress. SIGUSR1
    makes it capture now. Incidents are saved in the folder; list them with: hangdoctor
    incidents list --folder DIR.

    With --parent it only relays: agents (or other collectors) report to it, and it forwards
    changes and captures to its parent. It diagnoses nothing itself.
    """
    place = choose_folder(folder, job)
    if not parent:
        if name:
            raise UsageError(
                "--name needs --parent",
                "Add --parent auto, or the address of the parent collector.",
            )
        with unless_used(place, begins=True), only_collector(place):
            collect(place, flags)
        return
    if flags["config"] or flags["once"] or flags["web"]:
        raise UsageError(
            "with --parent a collector does not diagnose",
            "Pass --config, --once and --web to the collector without --parent.",
        )
    name = name or os.uname().nodename.split(".")[0]
    with only_collector(address.relay_folder(place, name)):
        relay(place, name, parent, flags)
