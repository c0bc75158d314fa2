"""`hangdoctor report`: files to look at, from a bundle."""

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
from . import pipes
from .output import write_file


class Writer(Protocol):
    """Makes one kind of file: the bytes, from the capture, its diagnosis and the bundle's folder."""

    def __call__(self, capture: JobCapture, diagnosis: Diagnosis, folder: Path) -> bytes: ...


# flag -> (module of hangdoctor, its function, what --help says); imported when it is asked for.
FORMATS: dict[str, tuple[str, str, str]] = {
    "text": ("report.terminal", "as_bytes", "The report as a terminal shows it, without colours."),
    "perfetto": (
        "timeline.pftrace",
        "as_bytes",
        "All ranks on one time axis, for Perfetto's viewer (ui.perfetto.dev).",
    ),
    "folded": (
        "timeline.folded",
        "folded",
        "Stacks of all ranks, merged, as flame graph tools read them.",
    ),
    "folded-by-rank": ("timeline.folded", "folded_by_rank", "The same, each rank by itself."),
    "speedscope": (
        "timeline.folded",
        "speedscope",
        "Stacks, merged and of each rank, for www.speedscope.app.",
    ),
    "json": ("storage.bundle", "as_bytes", "The diagnosis as JSON, as `diagnose --json` gives it."),
    "html": (
        "report.html",
        "as_bytes",
        "One page to look at and to send around; loads nothing from anywhere.",
    ),
}


def _add_flags(command: click.Command) -> None:
    for name, (_, _, says) in FORMATS.items():
        command.params.append(click.Option([f"--{name}"], metavar="FILE|-", help=says))


@click.command("report")
@click.argument("folder", metavar="BUNDLE", type=click.Path(path_type=Path))
@click.option("--quiet", "-q", is_flag=True, help="No line on stderr for each file written.")
def command(folder: Path, quiet: bool, **wanted: str | None) -> None:
    """Files to look at, to share or to load elsewhere, from a saved bundle.

    Several at once is fine; FILE may be - for standard output. A file that exists is replaced, whole or not at all.
    The diagnosis is made again from what was captured; nothing but the bundle is read.
    """
    chosen = {name.replace("_", "-"): target for name, target in wanted.items() if target}
    if not chosen:
        raise UsageError(
            "name at least one file to write: " + ", ".join(f"--{name} FILE" for name in FORMATS)
        )
    if sum(target == "-" for target in chosen.values()) > 1:
        raise UsageError("only one of the files can be standard output")
    capture = bundle.load(folder)
    diagnosis = diagnose(capture)
    failed: list[HangdoctorError] = []
    for name, target in chosen.items():
        module, function, _ = FORMATS[name]
        writer: Writer = getattr(importlib.import_module(f"hangdoctor.{module}"), function)
        try:
            data = writer(capture, diagnosis, folder)
            write_file(target, [data])
        except HangdoctorError as error:  # the other files are written all the same
            failed.append(error)
            continue
        if not quiet and target != "-":
            pipes.say(f"hangdoctor: {target} ({len(data) / 1000:.0f} kB)", err=True)
    if failed:
        raise failed[0]


_add_flags(command)
