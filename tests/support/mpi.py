"""The `mpiexec` programs of this machine: Debian's MPICH (scripts/setup-slurm), and Open MPI, the
system's or the one that scripts/setup-frameworks puts beside .venv.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BESIDE = ROOT / ".frameworks" / "openmpi" / "bin"
# Open MPI refuses root, and more ranks than cores, unless it is asked.
AS_ANYONE = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}
# As a batch script has it on one node of a real cluster (Slurm 22.05, `sbatch -N1 -n2`).
ALLOCATION = {
    "SLURM_JOB_ID": "77",
    "SLURM_JOBID": "77",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_NNODES": "1",
    "SLURM_NTASKS": "2",
    "SLURM_NPROCS": "2",
    "SLURM_TASKS_PER_NODE": "2",
    "SLURM_JOB_NODELIST": os.uname().nodename,
    "SLURM_NODELIST": os.uname().nodename,
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_GTIDS": "0",
}


def kinds() -> dict[str, list[str]]:
    """{"hydra" or "openmpi": the command that starts ranks on this machine alone}, as far as it is
    there.
    """
    found: dict[str, list[str]] = {}
    for name in ("mpiexec.hydra", "mpiexec.openmpi", "mpiexec", str(_BESIDE / "mpiexec")):
        path = shutil.which(name)
        kind = _kind(path) if path else ""
        if path and kind and kind not in found:
            # Within the variables of an allocation Hydra would ask srun for its nodes.
            found[kind] = [path, *(["-launcher", "fork"] if kind == "hydra" else [])]
    return found


def _kind(path: str) -> str:
    told = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30).stdout
    if "HYDRA" in told:
        return "hydra"
    return "openmpi" if "Open MPI" in told or "OpenRTE" in told else ""
