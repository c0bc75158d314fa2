"""`hangdoctor report`: writes reports from a bundle."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Protocol

import click

from ..diagnosis import diagnose
from ..errors import HangdoctorError, UsageError
from ..model.capture import JobCapture
from ..model.diagnosis import Diagnosis
from ..storage import bundle
from . import complete, pipes
from .output import write_file


class Writer(Protocol):
    """Makes one kind of file: the bytes, from the capture, its diagnosis and the bundle's folder."""

    def __call__(self, capture: JobCapture, diagnosis: Diagnosis, folder: Path) -> bytes: ...


# flag -> (module of hangdoctor, its function, what --help says); imported when it is used.
FORMATS: dict[str, tuple[str, str, str]] = {
    "text": (
        "report.terminal_report",
        "as_bytes",
        "The report as printed in a terminal, without colours.",
    ),
    "perfetto": (
        "timeline.pftrace",
        "as_bytes",
        "Timeline of all ranks, for https://ui.perfetto.dev.",
    ),
    "folded": (
        "timeline.folded",
        "folded",
        "Stacks of all ranks merged, in the folded format of flame graph tools.",
    ),
    "folded-by-rank": (
        "timeline.folded",
        "folded_by_rank",
        "Stacks of each rank, in the folded format of flame graph tools.",
    ),
    "speedscope": (
        "timeline.folded",
        "speedscope",
        "Stacks merged and of each rank, for https://www.speedscope.app.",
    ),
    "json": (
        "storage.bundle",
        "as_bytes",
        "The diagnosis as JSON, the same as of `diagnose --json`.",
    ),
    "html": (
        "report.html",
        "as_bytes",
        "One HTML page to send to others; loads nothing from the network.",
    ),
}


def _add_flags(command: click.Command) -> None:
    for name, (_, _, says) in FORMATS.items():
        command.params.append(click.Option([f"--{name}"], metavar="FILE|-", help=says))


@click.command("report")
@click.argument(
    "folder",
    metavar="BUNDLE",
    type=click.Path(path_type=Path),
    shell_complete=complete.bundles,
)
@click.option("--quiet", "-q", is_flag=True, help="Do not print a line for each file.")
def command(folder: Path, quiet: bool, **wanted: str | None) -> None:
    """Write reports from a saved bundle, one file for each flag; without one, BUNDLE.html.

    FILE may be - for standard output. An existing file is replaced, completely or not at all.
    The bundle is diagnosed again; nothing else is read.
    """
    chosen = {name.replace("_", "-"): target for name, target in wanted.items() if target}
    if not chosen:
        chosen = {"html": f"{folder.resolve() if not folder.name else folder}.html"}
    if sum(target == "-" for target in chosen.values()) > 1:
        raise UsageError("only one file can be standard output", "Name a file for the other one.")
    capture = bundle.load(folder)
    diagnosis = diagnose(capture, lenient=True)
    failed: list[HangdoctorError] = []
    for name, target in chosen.items():
        module, function, _ = FORMATS[name]
        writer: Writer = getattr(importlib.import_module(f"hangdoctor.{module}"), function)
        try:
            data = writer(capture, diagnosis, folder)
            write_file(target, [data])
        except HangdoctorError as error:  # the other files are still written
            failed.append(error)
            continue
        if not quiet and target != "-":
            pipes.say(f"hangdoctor: {target} ({len(data) / 1000:.0f} kB)", err=True)
    if failed:
        raise failed[0]


_add_flags(command)
