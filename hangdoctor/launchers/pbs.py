"""The nodes of a PBS job (PBS_NODEFILE), by mpiexec: one mpiexec a node.

A single mpiexec over all nodes prints what the healthy ones say and then waits for the dead one for
good, and mixes the lines of all ranks; one a node does neither.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import BadInput, LauncherError, UsageError
from ..model.capture import Site
from . import gather
from .knock import Address, Knocker
from .lost_nodes import Watch
from .pbs_job import site_of
from .remote import Command, query
from .slurm_job import clean_environment
from .ssh import read_hostfile

_VERSION_S = 5.0
_SSH = 22


class PbsReach:
    """The nodes that PBS_NODEFILE lists, by the job's own mpiexec; see `reach.Reach`."""

    means = "mpiexec"

    def __init__(self, python: str = "") -> None:
        self.python = python
        self.env = clean_environment(os.environ)

    def commands(self, words: Sequence[str], timeout_s: float) -> list[Command]:
        """One mpiexec a node, which has no limit of its own.

        Raises:
            UsageError: this is not a PBS job.
            BadInput, LauncherError: its file of nodes or mpiexec is not here.
        """
        hosts, make = self.nodes(), self._flavour()
        command = gather.own_command(words, self.python)
        return [Command(host, [*make(host), *command]) for host in hosts]

    def by_hand(self) -> str:
        """See `reach.TriedByHand`."""
        return " ".join([*self._flavour()("{node}"), "true"])

    def unasked(self) -> dict[str, str]:
        """None: PBS_NODEFILE says nothing about its nodes."""
        return {}

    def watch(self) -> Watch:
        """Knocks at sshd, by which most mpiexec start their processes."""
        return Watch(Knocker(_address))

    def site(self) -> Site:
        """PBS's commands; see `launchers.reach.HasSite`."""
        return site_of(os.environ.get("PBS_JOBID", "JOBID"), "--pbs")

    def nodes(self) -> list[str]:
        """The nodes of the job.

        Raises:
            UsageError, BadInput: as `commands`.
        """
        name = os.environ.get("PBS_NODEFILE", "")
        if not name:
            raise UsageError(
                "PBS_NODEFILE is not set",
                "Without a job id --pbs works inside a PBS job (qsub -I, or its script). From outside: --pbs JOBID.",
            )
        if not Path(name).exists():
            raise BadInput(
                f"the file in PBS_NODEFILE, {name}, does not exist here",
                "Run on the first node of the job: PBS writes the file there.",
            )
        return read_hostfile(Path(name))

    def _flavour(self) -> Callable[[str], list[str]]:
        found = shutil.which("mpiexec")
        if found is None:
            raise LauncherError(
                "mpiexec was not found",
                "Load the job's MPI module. If ssh reaches the nodes: --hostfile $PBS_NODEFILE.",
            )
        told = query(("mpiexec", "--version"), _VERSION_S, self.env)
        # PALS need not print its name; it is in the path of its program.
        return flavour(told.output + told.errors + os.path.realpath(found).upper())


def _address(host: str) -> Address:
    """sshd's port: most mpiexec start their processes by ssh.

    A node without one is waited for until the deadline.
    """
    return Address(host, (_SSH,), "sshd")


def flavour(version: str) -> Callable[[str], list[str]]:
    """The options that make this mpiexec run one process on one node, by its --version."""
    if "HYDRA" in version or "Intel(R) MPI" in version or "MVAPICH" in version:
        return hydra
    if "OpenRTE" in version or "Open MPI" in version or "PRRTE" in version:
        return openmpi
    if "PALS" in version:
        return pals
    return hydra  # MPICH's options are the ones that most others take


def hydra(host: str) -> list[str]:
    """https://github.com/pmodels/mpich, doc/wiki/how_to/Using_the_Hydra_Process_Manager.md"""
    return ["mpiexec", "-hosts", host, "-n", "1", "-wdir", "/"]


def openmpi(host: str) -> list[str]:
    """https://docs.open-mpi.org/en/main/man-openmpi/man1/mpirun.1.html; root is refused unless
    allowed.
    """
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpiexec", *root, "--host", host, "-np", "1", "--bind-to", "none", "--wdir", "/"]


def pals(host: str) -> list[str]:
    """HPE's Parallel Application Launch Service, as on Cray EX."""
    return [
        "mpiexec",
        "--hosts",
        host,
        "-n",
        "1",
        "--ppn",
        "1",
        "--cpu-bind",
        "none",
        "--wdir",
        "/",
    ]
