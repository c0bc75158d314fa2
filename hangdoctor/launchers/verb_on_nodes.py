"""One command of hangdoctor on every node of a job or host file, once, under a deadline: not a
capture, any verb.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from ..text.ranges import format_hosts
from . import gather
from .base import Progress
from .pbs import PbsLauncher
from .remote import Command, Outcome, run_all
from .slurm import SlurmLauncher
from .slurm_job import clean_environment
from .ssh import read_hostfile, ssh_command


class Target(Struct):
    """Which nodes: a Slurm job's (job, step), a host file's, or this PBS job's."""

    jobid: tuple[str, str] | None = None
    hostfile: Path | None = None
    pbs: bool = False
    python: str = ""


class Everywhere:
    """The nodes of a target, found once."""

    def __init__(self, target: Target) -> None:
        """
        Raises:
            UsageError: this is not a PBS job.
            BadInput: the host file, or PBS's, is none.
            LauncherError: the job is not there.
        """
        self.target = target
        self._slurm = (
            SlurmLauncher(*target.jobid, target.python) if target.jobid is not None else None
        )
        self._pbs = PbsLauncher(target.python)
        if self._slurm is not None:
            self.nodes = self._slurm.nodes()
        elif target.pbs:
            self.nodes = self._pbs.nodes()
        else:
            assert target.hostfile is not None
            self.nodes = read_hostfile(target.hostfile)

    def ask(self, words: Sequence[str], timeout_s: float, progress: Progress) -> list[Outcome]:
        """Run ``hangdoctor WORDS`` on each node.

        Raises:
            LauncherError: what starts commands there is not here.
        """
        progress(f"asking {len(self.nodes)} nodes: {format_hosts(self.nodes)}")
        command = gather.own_command(words, self.target.python)
        deadline = time.monotonic() + timeout_s
        if self._slurm is not None:
            return self._slurm.ask(self.nodes, command, deadline, progress)
        if self.target.pbs:
            commands = self._pbs.commands(command)
        else:
            commands = [
                ssh_command(h, gather.shell_command(command), timeout_s) for h in self.nodes
            ]
        return run_all(commands, deadline, clean_environment(os.environ), progress)

    def commands(self, words: Sequence[str], timeout_s: float) -> list[Command]:
        """``hangdoctor WORDS`` for each node, to be run by the caller, who speaks to its standard
        input; the GPUs of a Slurm job are visible to it.

        Raises:
            LauncherError: as `ask`.
        """
        command = gather.own_command(words, self.target.python)
        if self._slurm is not None:
            return self._slurm.spoken_to(self.nodes, command)
        if self.target.pbs:
            return self._pbs.commands(command)
        shell = gather.shell_command(command)
        return [ssh_command(host, shell, timeout_s) for host in self.nodes]
