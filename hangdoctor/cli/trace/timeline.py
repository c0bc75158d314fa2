"""`hangdoctor trace export` and `trace stragglers`: one timeline of all ranks, and who holds the others up."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from ...errors import UsageError
from ...text.plain import size_words
from ...text.printable import as_json
from .. import pipes
from ..output import write_file

_PLACE = click.argument(
    "place", metavar="[FOLDER|BUNDLE]", required=False, type=click.Path(path_type=Path)
)
_JOB = click.option(
    "--job",
    default="",
    metavar="KEY",
    help="Which job, where the folder has boxes of several; otherwise the newest.",
)


@click.command("export")
@_PLACE
@click.option(
    "--out",
    "-o",
    default="hangdoctor.pftrace",
    show_default=True,
    metavar="FILE|-",
    help="Where to write it.",
)
@click.option("--torch-profiler", "profiler", metavar="DIR", type=click.Path(path_type=Path),
              help="Add the GPU kernels of torch.profiler's traces in DIR (.json, .json.gz; one a rank).")  # fmt: skip
@click.option("--calls", default=100_000, show_default=True, type=click.IntRange(0), metavar="N",
              help="So many of the last call events of each rank, where calls are traced.")  # fmt: skip
@_JOB
@click.option("--quiet", "-q", is_flag=True, help="Nothing on stderr but errors.")
def export(
    place: Path | None, out: str, profiler: Path | None, calls: int, job: str, quiet: bool
) -> None:
    """One timeline of all ranks, for Perfetto's viewer (https://ui.perfetto.dev, "Open trace file").

    From the black boxes in a job's folder (HANGDOCTOR_DIR; default: where those of this user lie), while it runs, hangs or after
    it died; or from a bundle. Boxes hold the last 16,000 operations and marks of a rank, a bundle the last 2,000.
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
    help="Write everything as JSON; - is standard output, instead of the table.",
)
@click.option("--svg", "svg_file", metavar="FILE", help="Write the heat map rank x step.")
@_JOB
@click.option(
    "--no-color",
    is_flag=True,
    help="No colours (also NO_COLOR, and where the output is no terminal).",
)
def stragglers(
    place: Path | None, json_file: str | None, svg_file: str | None, job: str, no_color: bool
) -> None:
    """Who arrived last at each step, how long the others waited, and how much of the time was communication.

    From the black boxes in a job's folder, of a job that runs, or from a bundle, like `trace export`. A rank that comes late because it
    was itself kept waiting in the same step is not counted as holding the others up.
    """

    from ...timeline.build import build
    from ...timeline.histories import load
    from ...timeline.late_arrivals import analyse

    if svg_file == "-" and json_file == "-":
        raise UsageError("only one of the files can be standard output")
    found = analyse(build(load(place, job)))
    if svg_file:
        from ...timeline.heatmap import svg

        write_file(svg_file, [svg(found)])
    if json_file:
        write_file(json_file, [as_json(found)])
    if json_file != "-" and svg_file != "-":
        from rich.console import Console

        from ...timeline.late_table import render

        plain = no_color or bool(os.environ.get("NO_COLOR"))
        render(
            found,
            Console(
                color_system=None if plain else "auto", width=None if sys.stdout.isatty() else 140
            ),
        )
