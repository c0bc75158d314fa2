"""`hangdoctor fleet`: all jobs, in a table or on a page."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from ..errors import UsageError
from ..fleet.board import sample
from ..fleet.jobs import JobRow
from ..logs import to_stderr
from ..text import printable
from ..text.durations import duration
from ..text.plural import count
from ..transport import address
from . import pipes
from .columns import aligned
from .incident_search import root_flag
from .watch_flags import address_flags


@click.command("fleet")
@root_flag
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder for the page's token (default: ~/.hangdoctor/fleet).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the jobs as JSON.")
@address_flags
def command(roots: Sequence[Path], folder: Path | None, as_json: bool, **web: Any) -> None:
    """Show all jobs: state, progress, last verdict, and nodes that are culprits again and again.

    Reads the folders of their collectors and asks no node. With --web it serves a page, an API
    and metrics until Ctrl-C; otherwise it prints a table once.
    """
    places = [root.absolute() for root in roots]
    for root in places:
        if not root.is_dir():
            raise UsageError(f"{root} is not a folder", "Pass a folder of jobs: --root DIR")
    jobs = address.job_folder("-").parent
    if web["web"]:
        _serve(folder or jobs.parent / "fleet", places or [jobs], web)
        return
    now = sample(places or [jobs])
    if as_json:
        sys.stdout.buffer.write(printable.as_json({"jobs": now.jobs, "nodes": now.nodes}))
        sys.stdout.flush()
        return
    for line in _table(now.jobs):
        pipes.say(line)
    for one in now.nodes:
        kinds = ", ".join(f"{kind} {number}" for kind, number in one.kinds.items())
        pipes.say(
            f"{one.node}: culprit {one.incidents} times in {count(one.jobs, 'job')} ({kinds})"
        )
    if now.trouble:
        pipes.say(f"hangdoctor: {now.trouble}", err=True)
    if not now.jobs:
        pipes.say("no jobs", err=True)


def _serve(folder: Path, roots: Sequence[Path], web: dict[str, Any]) -> None:
    from ..fleet.server import serve
    from ..web.page_socket import Front, web_options

    to_stderr()
    serve(Front(web_options(folder, web)), roots)


def _table(jobs: Sequence[JobRow]) -> Iterator[str]:
    """The names of the columns, a line for each job, and an empty line; nothing without a job."""
    if not jobs:
        return
    names = ("JOB", "USER", "STATE", "RANKS", "NODES", "ITERATION", "INCIDENTS", "LAST VERDICT")
    yield from aligned([names, *map(_cells, jobs)])
    yield ""


def _cells(row: JobRow) -> tuple[str, ...]:
    state = str(row.state)
    if row.state == "stalled" and row.idle_s >= 0:
        state = f"stalled {duration(row.idle_s)}"
    figures = [str(number) for number in (row.living, row.nodes)]
    iteration = str(row.iteration) if row.iteration >= 0 else "-"
    last = "-"
    if row.last is not None:
        at = time.strftime("%m-%d %H:%M", time.localtime(row.last.at))
        last = f"{at} {row.last.summary}"
    return (row.place, row.user, state, *figures, iteration, str(row.incidents), last)
