"""`hangdoctor incidents`: what the collector has kept."""

from __future__ import annotations

import sys
import time

import click
import msgspec

from .. import bundle
from ..diagnosis import diagnose
from ..incidents import Incidents
from .output import deliver
from .watching import choose_folder


@click.group("incidents")
@click.option("--folder", metavar="DIR", type=click.Path(), help="The job's folder, as given to the collector.")
@click.option("--job", default="", metavar="NAME", help="The default folder of this job: ~/.hangdoctor/jobs/NAME.")
@click.pass_context
def command(ctx: click.Context, folder: str | None, job: str) -> None:
    """What the collector has kept: list, show, prune.

    Folder and index are brought to agree when they are opened, whatever was interrupted.
    """
    ctx.obj = (folder, job)


def _open(ctx: click.Context) -> Incidents:
    return Incidents(choose_folder(*ctx.obj), create=False)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_context
def list_them(ctx: click.Context, as_json: bool) -> None:
    """All incidents, oldest first."""
    rows = _open(ctx).rows()
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
        sys.stdout.flush()
        return
    for row in rows:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.at))
        state = "" if row.state == "saved" else f" [{row.state}]"
        click.echo(f"{row.id}  {at}  {row.status or '-'} {row.kind} {row.ranks}{state}  {row.summary}")
    if not rows:
        click.echo("no incidents", err=True)


@command.command("show")
@click.argument("id")
@click.option("--json", "json_file", metavar="FILE|-", help="The diagnosis as JSON.")
@click.option("--no-color", is_flag=True, help="No colours.")
@click.pass_context
def show(ctx: click.Context, id: str, json_file: str | None, no_color: bool) -> None:
    """One incident (its id, a part of it, or `last`), diagnosed again from its bundle."""
    incidents = _open(ctx)
    row = incidents.find(id)
    path = incidents.folder / row.id
    click.echo(f"{row.id}: {row.reason}", err=True)
    for line in filter(None, row.actions.splitlines()):
        click.echo(f"action {line}", err=True)
    deliver(diagnose(bundle.load(path)), json_file, False, no_color, str(path))


@command.command("prune")
@click.option("--keep", default=20, show_default=True, type=click.IntRange(0), metavar="N", help="Keep the newest so many.")
@click.option(
    "--older-than", default=0.0, type=click.FloatRange(0), metavar="DAYS", help="Of the rest remove only what is older."
)
@click.pass_context
def prune(ctx: click.Context, keep: int, older_than: float) -> None:
    """Remove old incidents with their bundles."""
    for id in _open(ctx).prune(keep, older_than * 86_400):
        click.echo(f"removed {id}")
