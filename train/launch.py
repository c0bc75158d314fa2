"""Who started us: rank, world size and where to meet, whatever the launcher calls them.

torchrun and deepspeed set torch's own names; srun, Open MPI, MPICH/Hydra and Cray PALS have theirs.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from hangdoctor.probe.launch_variables import MPI, TORCH, Place, place_of

from .options import ConfigError, is_number


@dataclass(frozen=True)
class Launch:
    """This rank among its peers, and the address where they meet."""

    rank: int
    world_size: int
    local_rank: int
    address: str
    port: int
    local_size: int = 0  # ranks of this host; 0 where the launcher does not say

    def device(self, devices: int) -> int:
        """This rank's GPU among those that it sees: where srun binds one to each task, that is 0
        for all of them.
        """
        return self.local_rank % devices

    def export(self, devices: int = 0, environ: MutableMapping[str, str] = os.environ) -> None:
        """Set torch's names, which DeepSpeed reads too; it takes LOCAL_RANK for the number of the
        GPU.
        """
        environ["RANK"], environ["WORLD_SIZE"] = str(self.rank), str(self.world_size)
        environ["LOCAL_RANK"] = str(self.device(devices) if devices else self.local_rank)
        if "OMPI_COMM_WORLD_LOCAL_RANK" in environ:  # DeepSpeed insists that the two agree
            environ["OMPI_COMM_WORLD_LOCAL_RANK"] = environ["LOCAL_RANK"]
        environ["MASTER_ADDR"], environ["MASTER_PORT"] = self.address, str(self.port)


def _first_slurm_host(nodelist: str) -> str:
    """``r7i6n[3-5,8],x1`` -> ``r7i6n3``."""
    match = re.match(r"([^,\[]+)(?:\[(\d+))?", nodelist)
    return match[1] + (match[2] or "") if match else "localhost"


def _free_port() -> int:
    """Alone, no one else has to know the port: trainings side by side on a host do not meet in one
    place.
    """
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def discover(environ: Mapping[str, str] = os.environ) -> Launch:
    """The launch from the environment; alone, if unknown otherwise.

    Raises:
        ConfigError: several ranks on nodes that no one named a meeting place for.
    """
    place = place_of(environ, _number)
    if place is None or place.size < 1:
        place = Place(TORCH, [0, 1, -1, 1])
    rank, size = place.rank, place.size
    local = max(place.local_rank, 0) if "LOCAL_RANK" not in environ else int(environ["LOCAL_RANK"])
    address = environ.get("MASTER_ADDR", "") or _first_host(environ, place)
    if not address and size > 1 and local != rank:
        raise ConfigError(
            f"rank {rank} of {size} runs on a second node: set MASTER_ADDR to the host of rank 0"
        )
    port = environ.get("MASTER_PORT") or (_free_port() if size == 1 else _port_of_job(environ))
    return Launch(
        rank,
        size,
        local,
        address or "127.0.0.1",
        port=int(port),
        local_size=max(place.local_size, 0),
    )


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    return int(text) if is_number(text) else -1


def _first_host(environ: Mapping[str, str], place: Place) -> str:
    """The host of rank 0: this one where all ranks run here, else as Slurm shows it; "" if unknown.

    Below mpiexec it is the allocation's first: the step that mpiexec reaches its other nodes by has
    these alone.
    """
    if place.local_size == place.size:
        return "127.0.0.1"
    name = "SLURM_JOB_NODELIST" if place.launcher in MPI else "SLURM_STEP_NODELIST"
    return _first_slurm_host(environ[name]) if name in environ else ""


def _port_of_job(environ: Mapping[str, str]) -> int:
    """One port a job, so that two jobs on a host do not meet in one place."""
    job = environ.get("SLURM_JOB_ID", environ.get("PBS_JOBID", "0")).split(".")[0]
    return 29500 + (int(job) % 10000 if is_number(job) else 0)
