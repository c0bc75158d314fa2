"""`hangdoctor clean`: removes what ended jobs have left."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click

from ..errors import HangdoctorError
from ..readers import discover
from ..storage import leftovers
from ..storage.leftovers import Leftover
from ..text.durations import duration
from ..text.job_names import short_job
from ..text.plain import safe_name, size_words
from . import pipes

_DAY_S = 86_400.0
_SQUEUE_S = 10.0
_SLURM = "slurm-"


class CleanError(HangdoctorError):
    """Something could not be removed."""


@click.command("clean")
@click.option("--dry-run", is_flag=True, help="List what would be removed, and remove nothing.")
@click.option(
    "--bundles",
    "bundle_days",
    type=click.FloatRange(0),
    metavar="DAYS",
    help="Also remove bundles and incidents older than this (default: keep all of them).",
)
@click.option("--quiet", "-q", is_flag=True, help="Print only errors.")
def command(dry_run: bool, bundle_days: float | None, quiet: bool) -> None:
    """Remove the leftovers of finished jobs: black boxes and folders of collectors; sizes are printed
    first.

    Black boxes are in shared memory, folders of collectors in ~/.hangdoctor/jobs. The folder of the
    fleet view goes where none is served, the index of the search after a week without one. Bundles and
    incidents are evidence: they stay without --bundles. Bundles are looked for in the current
    folder and in the temporary one. Nothing of a running job is removed, and no file that
    hangdoctor did not write.
    """
    older_than_s = None if bundle_days is None else bundle_days * _DAY_S
    found = _find(older_than_s)
    going = [one for one in found if not one.kept]
    total = size_words(sum(one.size for one in going))
    if not quiet:
        for one in sorted(found, key=lambda one: (bool(one.kept), one.kind, -one.size)):
            pipes.say(_line(one))
        verb = "would be removed" if dry_run else "to be removed"
        pipes.say(f"{len(going)} of {len(found)} {verb}, {total}")
    if not dry_run:
        _remove(going, quiet)


def _find(older_than_s: float | None) -> list[Leftover]:
    now = time.time()
    places = [Path.cwd(), Path(tempfile.gettempdir())]
    found = [
        *leftovers.boxes(now),
        *leftovers.jobs(now, older_than_s),
        *leftovers.bundles(places, now, older_than_s),
        *leftovers.of_fleet(now),
    ]
    here = [safe_name(short_job(job.key)) for job in discover.find_jobs()]
    for one in found:
        if one.kind == "job" and not one.kept:
            one.kept = _why_alive(one.path.name, here)
    return found


def _why_alive(name: str, here: Sequence[str]) -> str:
    """Why the job of this folder may be running."""
    if any(name.startswith(key) for key in here):
        return "its job runs on this host"
    job = name.removeprefix(_SLURM).partition("-")[0] if name.startswith(_SLURM) else ""
    return _in_queue(job) if job and shutil.which("squeue") else ""


def _in_queue(job: str) -> str:
    """What Slurm says against removing; it forgets jobs that have ended."""
    try:
        done = subprocess.run(
            ["squeue", "--noheader", f"--jobs={job}", "--format=%T"],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_SQUEUE_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "squeue did not answer"
    if done.returncode and "Invalid job id" not in done.stderr:
        return "squeue did not answer"
    return f"Slurm: {done.stdout.split()[0]}" if done.stdout.strip() else ""


def _line(one: Leftover) -> str:
    what = "keep  " if one.kept else "remove"
    age = f"{duration(one.age_s)} old" if one.age_s else "in use"
    why = ", ".join(filter(None, (age, one.note, one.kept)))
    return f"{what} {one.kind:<6} {size_words(one.size):>8}  {one.path}  ({why})"


def _remove(going: Sequence[Leftover], quiet: bool) -> None:
    """Raises CleanError: something is still there."""
    left: list[str] = []
    for one in going:
        try:
            if not leftovers.remove(one):
                left.append(f"{one.path}: in use again, or it has files of others")
        except OSError as error:
            left.append(f"{one.path}: {error.strerror}")
    if not quiet and going:
        pipes.say(f"removed {len(going) - len(left)}", err=True)
    if left:
        raise CleanError(f"not all could be removed: {'; '.join(left[:4])}")
