"""Every error that hangdoctor raises on purpose, in one tree.

    HangdoctorError                 exit code 1: failed; `help` says what to do
    |-- UsageError                  exit code 2: wrong usage
    |-- NoRanksFound                no process here looks like a rank
    |-- LauncherError               the scheduler or the remote shell refused
    |   |-- JobNotFound
    |   |-- JobNotRunning
    |   `-- NotPermitted
    |-- BadInput                    a file that cannot be used
    |-- BundleError                 a bundle cannot be written or read
    |-- WireError                   a node's report did not arrive completely
    |   `-- OtherProtocol           the other side speaks another version
    |-- CollectorError              the collector or an agent cannot start or continue
    `-- Cancelled                   exit code 130: Ctrl-C

There is one `except HangdoctorError`, in `hangdoctor.cli.main`. `OutputClosed` is outside of the
tree: it is not a failure.
"""

from __future__ import annotations


class HangdoctorError(Exception):
    """A failure with a message for the user and, in `help`, what to do next."""

    exit_code = 1
    default_help = ""

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message)
        self.help = help or self.default_help


class UsageError(HangdoctorError):
    """Flags or arguments that do not fit; exit code 2."""

    exit_code = 2


class NoRanksFound(HangdoctorError):
    """No process of this host, or of the nodes that were asked, looks like a rank."""

    default_help = (
        "Searched for processes with RANK and WORLD_SIZE (or SLURM_PROCID, OMPI_COMM_WORLD_RANK, "
        "PMI_RANK, PALS_RANKID) in their environment. Is the job on this host, and is it yours? For a Slurm job: hangdoctor dump --jobid J; "
        "for a process without these variables: hangdoctor dump --pid P."
    )


class LauncherError(HangdoctorError):
    """The scheduler or the remote shell could not be started, or refused."""


class JobNotFound(LauncherError):
    """The scheduler does not know the job."""


class JobNotRunning(LauncherError):
    """The scheduler knows the job, which has not started or has ended."""


class NotPermitted(LauncherError):
    """The job is another user's, or the scheduler does not let this user into it."""


class BadInput(HangdoctorError):
    """A file, or a part of one, that cannot be used: torn, foreign, or out of bounds."""


class BundleError(HangdoctorError):
    """A bundle that cannot be written, or what should be one and cannot be read."""


class WireError(HangdoctorError):
    """A node's report that did not arrive completely, or is not one."""


class OtherProtocol(WireError):
    """The other side speaks another version of the protocol."""

    default_help = "Use the same version of hangdoctor for the agents and the collector."


class CollectorError(HangdoctorError):
    """The collector, or an agent, cannot start or continue."""


class Cancelled(HangdoctorError):
    """Ctrl-C, after cleaning up; exit code 130."""

    exit_code = 130


class OutputClosed(Exception):
    """The reader of our standard output has gone (`| head`): the verb ends quietly with exit code
    0.
    """
