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
    exit_code = 2


class NoRanksFound(HangdoctorError):
    default_help = (
        "Searched for processes with RANK and WORLD_SIZE (or SLURM_PROCID, OMPI_COMM_WORLD_RANK, "
        "PMI_RANK, PALS_RANKID) in their environment. Is the job on this host, and is it yours? For a Slurm job: hangdoctor dump --jobid J; "
        "for a process without these variables: hangdoctor dump --pid P."
    )


class LauncherError(HangdoctorError):
    pass


class JobNotFound(LauncherError):
    pass


class JobNotRunning(LauncherError):
    pass


class NotPermitted(LauncherError):
    pass


class BadInput(HangdoctorError):
    pass


class BundleError(HangdoctorError):
    pass


class WireError(HangdoctorError):
    pass


class OtherProtocol(WireError):
    default_help = "Use the same version of hangdoctor for the agents and the collector."


class CollectorError(HangdoctorError):
    pass


class Cancelled(HangdoctorError):
    exit_code = 130


class OutputClosed(Exception):
    """The reader of our standard output has gone (`| head`): the verb ends quietly with exit code
    0.
    """
