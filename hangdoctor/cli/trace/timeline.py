"""`hangdoctor trace export` and `trace stragglers`: one timeline of all ranks, and which ranks the others wait for."""

from __future__ import annotations

from pathlib import Path

import click

from ...errors import UsageError
from ...text.plain import size_words
from ...text.printable import as_json
from .. import complete, pipes
from ..console import console
from ..output import write_file

_PLACE = click.argument(
    "place",
    metavar="[FOLDER|BUNDLE]",
    required=False,
    type=click.Path(path_type=Path),
    shell_complete=complete.bundles,
)
_JOB = click.option(
    "--job",
    default="",
    metavar="KEY",
    shell_complete=complete.jobs_here,
    help="The job, if the folder has black boxes of several: its name, script, or a process id (default: the newest).",
)


@click.command("export")
@_PLACE
@click.option(
    "--out",
    "-o",
    default="hangdoctor.pftrace",
    show_default=True,
    metavar="FILE|-",
    help="File to write.",
)
@click.option(
    "--torch-profiler",
    "profiler",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Add GPU kernels from torch.profiler traces in DIR (.json or .json.gz, one per rank).",
)
@click.option(
    "--calls",
    default=100_000,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="Number of last call events to include of each rank that traces calls.",
)
@_JOB
@click.option("--quiet", "-q", is_flag=True, help="Print only errors.")
def export(
    place: Path | None, out: str, profiler: Path | None, calls: int, job: str, quiet: bool
) -> None:
    """Write one timeline of all ranks, for https://ui.perfetto.dev ("Open trace file").

    Reads the black boxes in a job's folder (HANGDOCTOR_DIR; default: found for this user), also
    while the job hangs or after it died; or a bundle. Black boxes have the last 16,000
    operations and marks of a rank, a bundle the last 2,000.
    """
    from ...timeline.build import build
    from ...timeline.clocks import clock_lines
    from ...timeline.histories import load
    from ...timeline.pftrace import encode
    from ...timeline.profiler import tracks_of_folder

    timeline = build(load(place, job))
    more, notes = tracks_of_folder(profiler, timeline) if profiler is not None else ({}, [])
    written = write_file(out, encode(timeline, more=more, calls=calls))
    if quiet:
        return
    for line in (*timeline.trace.notes, *notes, *clock_lines(timeline.clocks)):
        pipes.say(f"hangdoctor: {line}", err=True)
    count = sum(len(lane.begin) for lane in timeline.lanes)
    unfinished = sum(end < 0 for lane in timeline.lanes for end in lane.end)
    pipes.say(
        f"hangdoctor: {out}: {len(timeline.lanes)} ranks, {count} operations ({unfinished} unfinished), {size_words(written)}; "
        "open it at https://ui.perfetto.dev",
        err=True,
    )


@click.command("stragglers")
@_PLACE
@click.option(
    "--json",
    "json_file",
    metavar="FILE|-",
    help="Write everything as JSON to FILE; - writes it to standard output instead of the table.",
)
@click.option(
    "--svg", "svg_file", metavar="FILE", help="Write a heat map of ranks and steps as SVG."
)
@_JOB
@click.option(
    "--no-color",
    is_flag=True,
    help="Print without colours (also with NO_COLOR, or if the output is not a terminal).",
)
def stragglers(
    place: Path | None, json_file: str | None, svg_file: str | None, job: str, no_color: bool
) -> None:
    """Show which rank arrived last at each step, how long the others waited, and the share of
    communication.

    Reads the black boxes of a job or a bundle, like `trace export`. A rank that is late only
    because it had to wait in the same step is not counted.
    """

    from ...timeline.build import build
    from ...timeline.histories import load
    from ...timeline.late_arrivals import analyse

    if svg_file == "-" and json_file == "-":
        raise UsageError("only one file can be standard output", "Name a file for the other one.")
    found = analyse(build(load(place, job)))
    if svg_file:
        from ...timeline.heatmap import svg

        written = write_file(svg_file, [svg(found)])
        if svg_file != "-":
            pipes.say(f"hangdoctor: {svg_file} ({size_words(written)})", err=True)
    if json_file:
        write_file(json_file, [as_json(found)])
    if json_file != "-" and svg_file != "-":
        from ...timeline.late_table import render

        render(found, console(no_color, width=140))
