"""Every error that hangdoctor raises on purpose, in one tree.

    HangdoctorError                 exit code 1: it could not; `help` says what to do
    |-- UsageError                  exit code 2: the command line cannot be meant
    |-- NoRanksFound                nothing here looks like a rank
    |-- LauncherError               the scheduler or the remote shell said no
    |   |-- JobNotFound
    |   |-- JobNotRunning
    |   `-- NotPermitted
    |-- BadInput                    a file that is not what it should be
    |-- BundleError                 a bundle cannot be written or read
    |-- WireError                   a node's report did not arrive whole
    |   `-- OtherProtocol           the other side speaks another version
    |-- CollectorError              the collector or an agent cannot start or go on
    `-- Cancelled                   exit code 130: Ctrl-C

There is one `except HangdoctorError`, in `hangdoctor.cli.main`. `OutputClosed` stands beside the
tree: it is no failure.
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
        "Looked for processes whose environment has RANK and WORLD_SIZE (or SLURM_PROCID, OMPI_COMM_WORLD_RANK, "
        "PMI_RANK, PALS_RANKID). Is the job on this host and yours? For a Slurm job: hangdoctor dump --jobid J; "
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
    """Whoever read our standard output has gone (`| head`): the verb ends quietly, exit code 0."""
