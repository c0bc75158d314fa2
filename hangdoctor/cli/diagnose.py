"""`hangdoctor diagnose`: diagnoses saved files."""

from __future__ import annotations

from pathlib import Path

import click

from ..diagnosis import diagnose
from ..errors import BadInput
from ..files import of_one_user
from ..model.capture import JobCapture
from ..readers import offline
from ..storage import bundle
from .output import Shown, deliver, exit_with, full_flag, result_flags


@click.command("diagnose")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@click.option(
    "--bundle",
    "bundle_dir",
    metavar="DIR",
    type=click.Path(),
    help="Save what was read as a new bundle in DIR.",
)
@full_flag
@result_flags
def command(
    paths: tuple[str, ...],
    bundle_dir: str | None,
    full: bool,
    json_file: str | None,
    quiet: bool,
    no_color: bool,
    exit_code: bool,
) -> None:
    """Diagnose saved files: a bundle, py-spy output, dumps or black boxes.

    PATH is a bundle of `hangdoctor dump`; or files, or folders of files: Flight Recorder dumps (pickle or JSON),
    black boxes, NCCL RAS output, and output of `py-spy dump` (text or --json, one or many
    processes in a file, such as trace-<node>.out). Damaged and unknown files are listed and
    skipped.
    """
    capture = load([Path(p) for p in paths])
    diagnosis = diagnose(capture)
    saved = str(paths[0]) if bundle.is_bundle(Path(paths[0])) else ""
    if bundle_dir:
        from ..report.terminal import plain

        saved = str(
            bundle.save(
                Path(bundle_dir), capture, diagnosis, plain(diagnosis), bundle.command_line()
            )
        )
    deliver(diagnosis, json_file, quiet, no_color, Shown(saved, full))
    exit_with(diagnosis, exit_code)


def load(paths: list[Path]) -> JobCapture:
    """The capture that some paths hold.

    Raises:
        BadInput: a path does not exist, or nothing in them can be diagnosed.
    """
    for path in paths:
        if not path.exists():
            raise BadInput(f"{path} does not exist")
    if len(paths) == 1 and paths[0].is_dir() and bundle.is_bundle(paths[0]):
        return bundle.load(paths[0])
    files: list[Path] = []
    notes: list[str] = []
    for path in paths:
        if path.is_dir() and bundle.is_bundle(path):
            raise BadInput(f"{path} is a bundle, and a bundle must be the only path")
        if path.is_dir():
            here, more = of_one_user(path, sorted(p for p in path.iterdir() if p.is_file()))
            notes += more
            files += here
        else:
            files.append(path)
    if not files:
        raise BadInput(f"{paths[0]} has no files in it")
    capture = offline.read(files)
    capture.notes += notes
    return capture
