"""`hangdoctor diagnose`: diagnoses saved files."""

from __future__ import annotations

from pathlib import Path

import click

from ..diagnosis import diagnose
from ..errors import BadInput, UsageError
from ..model.capture import JobCapture
from ..model.log_facts import JobLogs
from ..readers import beside_bundle, job_logs, offline
from ..readers.folders import files_under
from ..storage import bundle
from . import complete
from .output import Shown, deliver, exit_with, full_flag, result_flags
from .piped_in import as_files


@click.command("diagnose")
@click.argument("paths", nargs=-1, metavar="PATH...", type=click.Path())
@click.option(
    "--jobid",
    metavar="J",
    shell_complete=complete.job_ids,
    help="A finished Slurm job: its own output, and Slurm's account of how it ended.",
)
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
    jobid: str | None,
    bundle_dir: str | None,
    full: bool,
    json_file: str | None,
    quiet: bool,
    no_color: bool,
    exit_code: bool,
) -> None:
    """Diagnose saved files: a bundle, job logs, py-spy output, dumps or black boxes.

    PATH is a bundle of `hangdoctor dump`, alone or with files of the same job; or files, or folders of
    files, or - for standard input: job logs (slurm-*.out, output of torchrun, DeepSpeed or srun, a --log-dir
    tree, packed or not), Flight Recorder dumps (pickle or JSON) or what torchfrtrace printed of
    them, black boxes, NCCL RAS output, and stacks: of `py-spy dump` (text or --json, one or many
    processes in a file, such as trace-<node>.out), gdb, pstack, eu-stack or lldb. Damaged and unknown
    files are listed and skipped.
    """
    if not paths and not jobid:
        raise UsageError(
            "nothing to diagnose", "Name a bundle, logs or dumps, or a job: --jobid J."
        )
    with as_files([Path(p) for p in paths]) as files:
        capture = load_job(jobid, files) if jobid else load(files)
    diagnosis = diagnose(capture, lenient=True)
    saved = paths[0] if paths and bundle.is_bundle(Path(paths[0])) else ""
    if bundle_dir:
        from ..report.terminal_report import plain

        saved = str(
            bundle.save(
                Path(bundle_dir),
                capture,
                diagnosis,
                plain(diagnosis),
                command=bundle.command_line(),
            )
        )
    deliver(diagnosis, json_file, quiet, no_color, shown=Shown(saved, full))
    exit_with(diagnosis, exit_code)


def load_job(jobid: str, paths: list[Path]) -> JobCapture:
    """The capture of a Slurm job's own output, with Slurm's account of it.

    Raises:
        HangdoctorError: Slurm does not know the job, or it has no output that can be read.
    """
    from ..launchers.slurm_account import account_of

    account = account_of(jobid)
    found = [p for p in account.outputs if p not in paths]
    if not found and not paths:
        raise BadInput(
            f"no output of job {jobid} was found ({account.sentence()})",
            "Name its files: hangdoctor diagnose --jobid J PATH...",
        )
    capture = load([*paths, *found])
    capture.job = f"slurm:{jobid}"
    if capture.logs is None:
        capture.logs = JobLogs()
    job_logs.with_account(
        capture.logs,
        f"Slurm's account of job {jobid}",
        account.sentence(),
        account.facts(),
        at=account.ended,
    )
    if not account.over:
        capture.notes.append(
            f"job {jobid} is {account.state.lower()}: hangdoctor dump --jobid {jobid} sees its processes"
        )
    return capture


def load(paths: list[Path], join: bool = True) -> JobCapture:
    """The capture that some paths hold; with `join`, also the boxes of the same job in folders beside them.

    Raises:
        BadInput: a path does not exist, or nothing in them can be diagnosed.
    """
    for path in paths:
        if path != job_logs.STDIN and not path.exists():
            raise BadInput(f"{path} does not exist")
    bundles = [path for path in paths if path.is_dir() and bundle.is_bundle(path)]
    if len(bundles) > 1:
        raise BadInput(f"{bundles[0]} and {bundles[1]} are two bundles", "Name one of them.")
    if bundles:
        capture = bundle.load(bundles[0])
        rest = [path for path in paths if path not in bundles]
        return beside_bundle.join(capture, load(rest, join)) if rest else capture
    files: list[Path] = []
    notes: list[str] = []
    for path in paths:
        if path.is_dir():
            here, more = files_under(path)
            notes += more
            files += here
            files += [p for p in _beside(path) if p not in files] if join else []
        else:
            files.append(path)
    if not files:
        raise BadInput(
            f"{paths[0]} has no files in it",
            "The black boxes of a job that ended cleanly are removed; of one that runs, they are there.",
        )
    capture = offline.read(files)
    capture.notes += notes
    return capture


def _beside(folder: Path) -> list[Path]:
    """Files of the same job in the folders beside this one."""
    from ..readers.joined_folders import of_the_same_job

    return of_the_same_job(folder)
