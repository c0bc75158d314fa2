"""The training of two ranks whose other threads poll (`jobs/polling_job.py`), and what became of
it.
"""

from __future__ import annotations

from pathlib import Path

from hangdoctor.storage.incidents import Incident, Incidents
from tests.support.ports import free_port
from tests.support.sidecar_stage import Job

SCRIPT = Path(__file__).with_name("jobs") / "polling_job.py"


def polling_environment(job: Job) -> dict[str, str]:
    """What the two ranks are started with."""
    (job.logs / "control").mkdir()
    port = str(free_port())
    return {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": "1",
        "HANGDOCTOR_DIR": str(job.logs / "boxes"),
        "TORCHELASTIC_RUN_ID": f"poll-{port}",
    }


def steps(job: Job) -> int:
    return int((job.logs / "control" / "at.0").read_text().split()[0])


def incidents(job: Job) -> list[Incident]:
    if not (job.folder / "incidents" / "index.sqlite").exists():
        return []
    return [i for i in Incidents(job.folder).rows() if i.state == "saved"]
