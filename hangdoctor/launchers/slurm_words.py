"""What Slurm's commands say, in plain words, and as errors that say what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from ..errors import HangdoctorError, JobNotRunning, LauncherError, NotPermitted
from . import gather
from .remote import Outcome

CONTROLLER_HELP = (
    "Try: scontrol ping. To reach the nodes by ssh instead: hangdoctor dump --hostfile F."
)
ENDED = (
    r"Invalid job id|already completing or completed|Expired or invalid job|has expired|Job is not running|"
    r"Requested job step [^\n]{0,200}not|Job/step"
)
_CONTROLLER = (
    r"[Uu]nable to contact slurm controller|Unable to establish control|"
    r"Could not establish a configuration source|Connection refused|Socket timed out"
)
# All of the line says why.
_BUSY = r"temporarily disabled|nodes are busy|Unable to create step"
# What srun says of a node that it cannot reach, in plain words.
_WORDS = (
    (r"Task launch for \S+ failed on node \S+: ([^\n]*)", "its slurmd does not answer ({})"),
    (
        r"Node failure on|[Nn]ode \S+ is not responding|Job credential|Zero Bytes were transmitted",
        "Slurm lost the node ({})",
    ),
    (_BUSY, "Slurm cannot start a step on it ({})"),
)


def controller_is_silent(errors: str) -> bool:
    """Whether a command failed because Slurm's controller did not answer it."""
    return re.search(_CONTROLLER, errors) is not None


def in_words(outcome: Outcome) -> Outcome:
    """What srun said, as a person would say it."""
    if re.search(ENDED, outcome.errors):
        return msgspec.structs.replace(outcome, errors="the job ended while it was being captured")
    for pattern, words in _WORDS:
        lines = ((re.search(pattern, line), line) for line in outcome.errors.splitlines())
        match, line = next((found for found in lines if found[0] is not None), (None, ""))
        if match is not None:
            said = line if pattern is _BUSY else match[match.lastindex or 0]
            return msgspec.structs.replace(
                outcome, errors=words.format(gather.last_words(said) or said.strip())
            )
    return outcome


def not_running(job: str, state: str, reason: str) -> JobNotRunning:
    """The error for a job that is not in state RUNNING; `state` and `reason` as squeue has them."""
    words = state.lower().replace("_", " ")
    why = f" ({reason})" if reason not in ("", "None") else ""
    if state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"):
        return JobNotRunning(
            f"job {job} has not started: it is {words}{why}",
            "Capture it once it runs: squeue -j " + job,
        )
    if state == "CONFIGURING":
        return JobNotRunning(
            f"job {job} has not started: its nodes are being set up", "Try again in a minute."
        )
    if state in ("SUSPENDED", "STOPPED"):
        return JobNotRunning(
            f"job {job} is {words} by Slurm: all of its processes are stopped, which is why it hangs",
            f"Resume it: scontrol resume {job}",
        )
    if state in ("COMPLETING", "STAGE_OUT", "SIGNALING"):
        return JobNotRunning(f"job {job} is ending ({words})", f"See: sacct -j {job}")
    return JobNotRunning(
        f"job {job} has ended: {words}{why}", f"See: sacct -j {job}, and the end of its log."
    )


def refusal(job: str, silent: Sequence[Outcome]) -> HangdoctorError | None:
    """The error that all nodes of `job` failed with; None where they did not fail alike."""
    table: list[tuple[str, type[HangdoctorError], str, str]] = [
        (
            r"[Pp]ermission denied|not authorized|Access denied",
            NotPermitted,
            f"Slurm does not allow you to start a step in job {job}",
            f"Only the job's own user may do that: squeue -j {job}",
        ),
        (_CONTROLLER, LauncherError, "Slurm's controller stopped answering", CONTROLLER_HELP),
        (
            r"unrecognized option|invalid option",
            LauncherError,
            f"this srun does not know an option that we use: {gather.last_words(silent[0].errors)}",
            "Slurm 19.05 or later is needed.",
        ),
    ]
    said = ["" if gather.set_up_trouble(o.errors) else o.errors for o in silent]
    return gather.refused(said, table)
