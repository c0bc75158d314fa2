"""Who started us: rank, world size and where to meet, whatever the launcher calls them.

torchrun and deepspeed set torch's own names; the other launchers have theirs
(`hangdoctor.probe.launch_variables`).
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from hangdoctor.probe.launch_variables import launched

from .options import ConfigError, is_number


@dataclass(frozen=True)
class Launch:
    """This rank among its peers, and the address where they meet."""

    rank: int
    world_size: int
    local_rank: int
    address: str
    port: int

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
        ConfigError: a rank without a world size, or several ranks on nodes that no one named a
            meeting place for.
    """
    found = launched(environ)
    rank, size = (found.rank, max(1, found.world_size)) if found is not None else (0, 1)
    if rank >= size:
        raise ConfigError(f"rank {rank} does not fit a world size of {size}: set WORLD_SIZE")
    address = environ.get("MASTER_ADDR", "")
    if not address and "SLURM_STEP_NODELIST" in environ:
        address = _first_slurm_host(environ["SLURM_STEP_NODELIST"])
    local = max(0, found.local_rank) if found is not None else 0
    if is_number(environ.get("LOCAL_RANK", "")):
        local = int(environ["LOCAL_RANK"])
    if not address and size > 1 and local != rank:
        raise ConfigError(
            f"rank {rank} of {size} runs on a second node: set MASTER_ADDR to the host of rank 0"
        )
    port = environ.get("MASTER_PORT") or (_free_port() if size == 1 else _port_of_job(environ))
    return Launch(rank, size, local, address or "127.0.0.1", port=int(port))


def _port_of_job(environ: Mapping[str, str]) -> int:
    """One port a job, so that two jobs on a host do not meet in one place."""
    job = environ.get("SLURM_JOB_ID", environ.get("PBS_JOBID", "0")).split(".")[0]
    return 29500 + (int(job) % 10000 if is_number(job) else 0)
