"""`mpiexec` as tests start it: by itself on this host, as any user, with as many ranks as they want."""

from __future__ import annotations

import os
import shutil

# Hydra: no scheduler and no ssh. Open MPI 4 and 5 (PRTE): the same, as root too, beyond the processors.
ALONE = {
    "HYDRA_BOOTSTRAP": "fork",
    "HYDRA_RMK": "user",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_ras": "^slurm",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_ras": "^slurm",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM", "PMI", "OMPI_", "PALS")


def clean_environ() -> dict[str, str]:
    """This environment without what the test itself was started by."""
    return {k: v for k, v in os.environ.items() if not k.startswith(_LAUNCHERS)}


def programs() -> list[str]:
    """Each mpiexec of this machine once: Hydra's, Open MPI's."""
    found = [shutil.which(name) for name in ("mpiexec.hydra", "mpiexec.openmpi", "mpiexec")]
    return list({os.path.realpath(path): path for path in found if path is not None}.values())
