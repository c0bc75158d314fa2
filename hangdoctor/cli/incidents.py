"""`hangdoctor incidents`: lists, shows, searches, exports and removes incidents; lists the training's
events.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from ..diagnosis import diagnose
from ..errors import UsageError
from ..readers import job_choice
from ..sidecar.wiring import choose_folder
from ..storage import bundle
from ..storage.event_rows import EventRow
from ..storage.incidents import Incident, Incidents
from ..text import printable
from ..transport import address
from . import complete, incident_search, pipes
from .columns import aligned
from .incident_search import Named
from .output import Shown, deliver, full_flag
from .sidecar import local_folder

Cells = tuple[str, ...]
_INCIDENT: Cells = ("ID", "TIME", "STATUS", "KIND", "RANKS", "VERDICT")
_EVENT: Cells = ("TIME", "KIND", "ITERATION", "RANK", "NODE", "ACTIONS", "TEXT")
_JOBS = 6  # named in one line


def _note(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
    named = ctx.ensure_object(Named)
    if not value:
        return
    if named.where != ctx.command_path:
        named.folder, named.job, named.where = "", "", ctx.command_path
    if option.name == "job":
        named.job = value
    else:
        named.folder = value


def _which(command: Callable[..., Any]) -> Callable[..., Any]:
    """--folder and --job."""
    folder = click.option(
        "--folder",
        metavar="DIR",
        type=click.Path(),
        expose_value=False,
        callback=_note,
        help="The job's folder, as given to the collector (default: the newest in ~/.hangdoctor/jobs).",
    )
    job = click.option(
        "--job",
        metavar="NAME",
        shell_complete=complete.collectors,
        expose_value=False,
        callback=_note,
        help="Use the default folder of this job, ~/.hangdoctor/jobs/NAME.",
    )
    return folder(job(command))


@click.group("incidents")
@_which
def command() -> None:
    """List, show, search, export or remove the incidents that the collector saved.

    list, show and prune are about one job, --folder or --job, and repair its index if a
    collector was interrupted; search and export are about all jobs.
    """


command.add_command(incident_search.search)
command.add_command(incident_search.export)


def _open(ctx: click.Context, changes: bool = False) -> Incidents:
    """Raises UsageError: no folder is given, and there is none or the sub-verb removes something (`changes`)."""
    named = ctx.ensure_object(Named)
    if named.folder or named.job:
        return Incidents(choose_folder(named.folder, _folder_name(named.job)), create=False)
    # A collector writes the index while it runs, so its time shows which job is the newest.
    kept = sorted(
        address.job_folder("-").parent.glob("*/incidents/index.sqlite"),
        key=lambda p: -p.stat().st_mtime,
    )
    jobs = [p.parents[1].name for p in kept]
    there = (
        f"{', '.join(jobs[:_JOBS])}{f' and {len(jobs) - _JOBS} more' if len(jobs) > _JOBS else ''}"
    )
    if not jobs:
        raise UsageError(
            "no folder was given, and ~/.hangdoctor/jobs has no folder of a collector",
            "Pass the folder that the collector was given: --folder DIR",
        )
    if changes:
        raise UsageError(
            "prune needs the folder to remove from",
            f"Choose it with --job NAME or --folder DIR. There are: {there}",
        )
    other = f"; there are {there} (--job NAME)" if len(jobs) > 1 else ""
    pipes.say(
        f"hangdoctor: incidents of ~/.hangdoctor/jobs/{jobs[0]}{', the newest' if other else ''}{other}",
        err=True,
    )
    return Incidents(kept[0].parents[1], create=False)


def _folder_name(job: str) -> str:
    """The name of a job's folder, where a job that runs here was named as other verbs take it.

    Raises:
        UsageError: it names the script of several.
    """
    if not job or address.job_folder(job).exists():
        return job
    here = job_choice.named(job_choice.all_here(), job)
    name = local_folder(job_choice.preferred(here).key) if here else job
    return name if address.job_folder(name).exists() else job


@command.command("list")
@_which
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def list_them(ctx: click.Context, as_json: bool) -> None:
    """List all incidents, oldest first."""
    rows = _open(ctx).rows()
    _list(rows, as_json, _INCIDENT, [_cells(row) for row in rows])
    if not rows and not as_json:
        pipes.say("no incidents", err=True)


def _list(rows: object, as_json: bool, head: Cells, cells: Sequence[Cells]) -> None:
    """The rows as JSON, or their cells as a table; nothing without one."""
    if as_json:
        sys.stdout.buffer.write(printable.as_json(rows))
        sys.stdout.flush()
    elif cells:
        zone = time.strftime("%Z")
        names = tuple(name.replace("TIME", f"TIME ({zone})") for name in head)
        for line in aligned([names, *cells]):
            pipes.say(line)


def _cells(row: Incident) -> Cells:
    status = (row.status or "-") if row.state == "saved" else f"{row.status or '-'} [{row.state}]"
    return (row.id, _clock(row.at), status, row.kind or "-", row.ranks or "-", row.summary)


@command.command("events")
@_which
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def events(ctx: click.Context, as_json: bool) -> None:
    """List what the training said of itself, such as spikes of its loss, oldest first."""
    rows = _open(ctx).events()
    _list(rows, as_json, _EVENT, [_event_cells(row) for row in rows])
    if not rows and not as_json:
        pipes.say("no events", err=True)


def _event_cells(row: EventRow) -> Cells:
    iteration = str(row.iteration) if row.iteration >= 0 else "-"
    acted = "; ".join(row.actions.splitlines()) or "-"
    return (_clock(row.at), row.kind or "-", iteration, str(row.rank), row.node, acted, row.text)


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


@command.command("show")
@_which
@click.argument("id", shell_complete=complete.incidents)
@click.option(
    "--json",
    "json_file",
    metavar="FILE|-",
    help="Write the diagnosis as JSON; - is standard output.",
)
@click.option("--no-color", is_flag=True, help="Print without colours.")
@full_flag
@click.pass_context
def show(ctx: click.Context, id: str, json_file: str | None, no_color: bool, full: bool) -> None:
    """Diagnose one incident again from its bundle; ID is its id, a part of it, or `last`."""
    incidents = _open(ctx)
    row = incidents.find(id)
    path = incidents.folder / row.id
    pipes.say(f"{row.id}: {row.reason}", err=True)
    for line in filter(None, row.actions.splitlines()):
        pipes.say(f"action {line}", err=True)
    deliver(
        diagnose(bundle.load(path), lenient=True),
        json_file,
        False,
        no_color,
        shown=Shown(str(path), full),
    )


@command.command("prune")
@_which
@click.option(
    "--keep",
    default=20,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="Number of newest incidents to keep.",
)
@click.option(
    "--older-than",
    default=0.0,
    type=click.FloatRange(0),
    metavar="DAYS",
    help="Of the others, remove only those older than this.",
)
@click.pass_context
def prune(ctx: click.Context, keep: int, older_than: float) -> None:
    """Remove old incidents with their bundles."""
    for id in _open(ctx, changes=True).prune(keep, older_than * 86_400):
        pipes.say(f"removed {id}")
