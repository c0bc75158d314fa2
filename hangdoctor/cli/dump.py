"""`hangdoctor dump`: captures once, diagnoses, prints the report, saves a bundle."""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec
from click.core import ParameterSource

from ..clock import SystemClock
from ..diagnosis import diagnose
from ..diagnosis.third_sample import MORE_PAUSE_S, pause_s, why_more
from ..errors import BundleError, HangdoctorError
from ..launchers.base import Launcher, Progress
from ..launchers.reach import ReachLauncher
from ..launchers.second_capture import join_captures
from ..model.capture import JobCapture
from ..model.diagnosis import Diagnosis
from ..readers.node import CaptureOptions
from ..storage import bundle
from ..time_limit import OutOfTime, within
from . import complete, pipes
from .output import Shown, deliver, exit_with, full_flag, progress_to_stderr, result_flags
from .shared_flags import seconds
from .targets import one_target, reach_flags, reach_of

_SAVE_S = 15.0  # to write the bundle; the program does not wait longer than this
_SAVE_AT_LEAST_S = 5.0  # nor longer than for the capture, where that is more than so much
_PAUSE_AT_MOST_S = (
    15.0  # a verdict with some doubt in seconds is worth more than a certain one in minutes
)


@click.command("dump")
@click.option(
    "--local",
    "local",
    is_flag=True,
    help="All ranks of this user on this host (as root: of all users).",
)
@click.option(
    "--pid",
    "pids",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="P",
    help="The process P; can be repeated.",
)
@click.option(
    "--jobid",
    metavar="J[.STEP]",
    shell_complete=complete.job_ids,
    help="A running Slurm job; starts one short step on each of its nodes.",
)
@reach_flags
@click.option(
    "--job",
    default="",
    metavar="KEY",
    shell_complete=complete.jobs_here,
    help="The job, if a host runs several, by its name, its script, or a process id (default: your newest).",
)
@click.option(
    "--user", default="", help="Only ranks of this user (default: you; as root all users)."
)
@seconds(
    "--settle",
    default=1.0,
    most=3600,
    help="Seconds between the two samples of each rank. If unset, a third, later sample is taken when two cannot tell slow from stuck.",
)
@seconds(
    "--timeout",
    default=20.0,
    least=0.5,
    most=3600,
    help="Seconds for the whole capture; ranks and nodes that have not answered by then are reported as missing.",
)
@click.option(
    "--native",
    is_flag=True,
    help="Include native (C++) frames. Stops each process for about 0.6 s, except those in state D or T.",
)
@click.option(
    "--blocking",
    is_flag=True,
    help="Stop each process while its stack is read, for consistent stacks; except those in state D or T.",
)
@click.option(
    "--nccl-dump",
    is_flag=True,
    help="Ask ranks without a black box for a Flight Recorder dump (TORCH_NCCL_DEBUG_INFO_PIPE_FILE), unless that would overwrite one.",
)
@click.option(
    "--python",
    "python",
    metavar="PATH",
    help="Python on the nodes that can import hangdoctor (default: the Python running this).",
)
@click.option(
    "--remote-shell",
    type=click.Choice(["ssh", "pdsh"]),
    default="ssh",
    show_default=True,
    help="Command that reaches the hosts of --hostfile.",
)
@click.option(
    "--bundle",
    "bundle_dir",
    metavar="DIR",  # no click.Path: it would access a file system that may not answer
    help="Folder for the bundle (default: hangdoctor-<job>-<time>/).",
)
@click.option("--no-bundle", is_flag=True, help="Do not save a bundle.")
@full_flag
@result_flags
def command(**flags: object) -> None:
    """Capture a hung job once and name the culprit rank.

    The job needs no preparation, and by default no rank is stopped or paused. Choose one target: --local, --pid, --jobid,
    --hostfile, --pbs, --k8s, --ray or --exec with --hosts.
    """
    options = CaptureOptions(
        job=str(flags["job"]),
        user=str(flags["user"]),
        pids=list(flags["pids"]),  # type: ignore[call-overload]
        settle_s=flags["settle"],  # type: ignore[arg-type]
        timeout_s=flags["timeout"],  # type: ignore[arg-type]
        native=bool(flags["native"]),
        blocking=bool(flags["blocking"]),
        keep_raw=not flags["no_bundle"],
        nccl_dump=bool(flags["nccl_dump"]),
    )
    quiet = bool(flags["quiet"])
    launcher, options = choose_launcher(flags, options)
    told = click.get_current_context().get_parameter_source
    settle_given, timeout_given = (
        told(name) is not ParameterSource.DEFAULT for name in ("settle", "timeout")
    )
    whole_s = options.timeout_s if timeout_given else 2 * options.timeout_s + _PAUSE_AT_MOST_S
    capture = _look(launcher, options, progress_to_stderr(quiet), 0.0 if settle_given else whole_s)
    _say_chosen(capture, quiet, bool(options.job))
    diagnosis = diagnose(capture, lenient=True)
    saved, trouble = (
        ("", None)
        if flags["no_bundle"]
        else keep(capture, diagnosis, flags["bundle_dir"], _save_s(options.timeout_s))
    )
    shown = Shown(saved, bool(flags["full"]))
    deliver(diagnosis, flags["json_file"], quiet, bool(flags["no_color"]), shown=shown)  # type: ignore[arg-type]
    if trouble is not None:
        raise trouble  # after the verdict, which matters more than the bundle
    exit_with(diagnosis, bool(flags["exit_code"]))


def _say_chosen(capture: JobCapture, quiet: bool, named: bool) -> None:
    """Print which of several jobs was taken on each node; with `quiet` once, and not what was named.
    Whoever reads the bundle has no use for it.
    """
    chosen = [node.chosen for node in capture.nodes if node.chosen]
    if quiet:
        chosen = [] if named else chosen[:1]
    for said in chosen:
        pipes.say(f"hangdoctor: captured job {said}", err=True)
    for node in capture.nodes:
        node.chosen = ""


def _look(
    launcher: Launcher, options: CaptureOptions, progress: Progress, whole_s: float
) -> JobCapture:
    """Capture; and again where only that can tell a slow rank from a stuck one, and all fit into `whole_s`."""
    clock = SystemClock()
    begin = clock.monotonic()
    capture = launcher.capture(options, progress)
    first_s = clock.monotonic() - begin
    if not whole_s:
        return capture
    again = _Again(launcher, options, progress, begin, end=begin + whole_s - first_s)
    so_far = diagnose(capture, lenient=True)
    pause = pause_s(capture, so_far)
    if 0 < pause <= _PAUSE_AT_MOST_S:
        later = f"capturing again in {pause:.0f} s to tell slow from stuck"
        capture = again.after(
            capture, pause, f"so far: {so_far.summary} It may only be slow; {later}"
        )
    while again.in_time():
        why = why_more(capture, diagnose(capture, lenient=True))
        before = len(capture.notes)
        if why:
            capture = again.after(capture, MORE_PAUSE_S, why)
        if not why or len(capture.notes) > before:
            break
    return capture


class _Again(msgspec.Struct):
    """Captures the same job again, and joins what it sees to what was seen before."""

    launcher: Launcher
    options: CaptureOptions
    progress: Progress
    begin: float
    end: float  # when it is too late to begin another one

    def in_time(self, pause: float = 0.0) -> bool:
        """Whether there is time for another one after this pause."""
        return SystemClock().monotonic() + pause < self.end

    def after(self, capture: JobCapture, pause: float, why: str) -> JobCapture:
        """The capture joined with another one, or with a note on why there is none."""
        if not self.in_time(pause):
            capture.notes.append(
                f"another capture {pause:.0f} s later would tell slow from stuck, but --timeout leaves no time for it"
            )
            return capture
        self.progress(why)
        time.sleep(pause)
        apart = SystemClock().monotonic() - self.begin
        try:
            later = self.launcher.capture(self.options, self.progress)
        except HangdoctorError as error:
            capture.notes.append(f"the second capture failed: {error}")
            return capture
        return join_captures(capture, later, apart)


def choose_launcher(
    flags: dict[str, object], options: CaptureOptions
) -> tuple[Launcher, CaptureOptions]:
    """The launcher for the target that the flags name.

    Raises:
        UsageError: no target, or more than one.
    """
    target = one_target(flags, {"local": "--local", "pids": "--pid P", "jobid": "--jobid J"})
    if target in ("local", "pids"):
        from ..launchers.local import LocalLauncher

        return LocalLauncher(), options
    if target == "jobid":
        from ..launchers.slurm import SlurmLauncher
        from ..launchers.slurm_job import parse_job

        job, step = parse_job(str(flags["jobid"]))
        wanted = msgspec.structs.replace(options, slurm_job=job, slurm_step=step)
        return SlurmLauncher(job, step, str(flags["python"] or "")), wanted
    return ReachLauncher(reach_of(target, flags)), options


def _save_s(timeout_s: float) -> float:
    return min(_SAVE_S, max(_SAVE_AT_LEAST_S, timeout_s))


def keep(
    capture: JobCapture, diagnosis: Diagnosis, wanted: object, seconds: float = _SAVE_S
) -> tuple[str, BundleError | None]:
    """(path of the bundle, "") or ("", what went wrong)."""
    from ..report.terminal_report import plain

    path = Path(str(wanted)) if wanted else bundle.default_path(capture.job, capture.taken)
    try:
        return str(
            within(
                seconds,
                lambda: bundle.save(
                    path, capture, diagnosis, plain(diagnosis), command=bundle.command_line()
                ),
            )
        ), None
    except OutOfTime:
        why = f"the bundle was not written: {path.parent.absolute()} did not answer within {seconds:.0f} s"
        return "", BundleError(why, "Choose another folder with --bundle DIR.")
    except BundleError as error:
        return "", error
