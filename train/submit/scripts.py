"""The script of a job: the lines for the scheduler and the command, in front of the one that comes
with hangdoctor (`train_with_hangdoctor.sbatch`, `.pbs`, `.sh`), whose own lines for the scheduler go.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from .job import Job, torchrun_words

POLARIS_CORES = 8  # 32 cores for 4 GPUs: https://docs.alcf.anl.gov/polaris/
_PBS_NAME = 15  # characters that every PBS takes
_HERE = Path(__file__).parent


def slurm(job: Job) -> str:
    """For sbatch."""
    words = [
        f"--job-name={job.name}",
        f"--nodes={job.nodes}",
        f"--ntasks-per-node={job.per_node}",
        f"--time={job.minutes}",
        f"--output={job.log}",
        "--open-mode=append",
    ]
    own = {}
    if job.cores:
        words.append(f"--cpus-per-task={job.cores}")
        own["SRUN_CPUS_PER_TASK"] = str(job.cores)  # srun itself reads no other since 22.05
    if job.gpus:
        words.append(f"--gres=gpu:{job.gpus}")
    return _script("SBATCH", [*words, *job.directives], job, own)


def pbs(job: Job) -> str:
    """For qsub. The script writes its log itself: PBS would hand it over at the end."""
    cores = job.per_node * max(job.cores, 1)
    select = f"select={job.nodes}:ncpus={cores}:mpiprocs={job.per_node}"
    if job.gpus:
        select += f":ngpus={job.gpus}"
    return _pbs(job, [f"-l {select}", "-l place=scatter"], {})


def polaris(job: Job) -> str:
    """For qsub on Polaris, whose nodes are asked for whole. The trainer binds its ranks itself:
    GPU 0 is near the last of the four groups of cores, and `--cpu-bind depth` would begin at the
    first.
    """
    places = [f"-l select={job.nodes}:system=polaris", "-l place=scatter"]
    return _pbs(job, places, {"CPU_BIND": "none"})


def torchrun(job: Job) -> str:
    """For bash on this host."""
    return _script("", [], job, {"RUN_ID": job.name})


def _pbs(job: Job, places: list[str], more: dict[str, str]) -> str:
    hours, minutes = divmod(job.minutes, 60)
    words = [
        f"-N {job.name[:_PBS_NAME]}",
        *places,
        f"-l walltime={hours:02}:{minutes:02}:00",
        "-j oe",
    ]
    own = {"RANKS_PER_NODE": str(job.per_node), "CORES_PER_RANK": str(max(job.cores, 1)), **more}
    if job.environment:
        own["JOB_VARIABLES"] = " ".join(job.environment)
    return _script("PBS", [*words, *job.directives], job, own)


def _script(mark: str, directives: list[str], job: Job, own: dict[str, str]) -> str:
    suffix = {"SBATCH": "sbatch", "PBS": "pbs", "": "sh"}[mark]
    body = (_HERE / f"train_with_hangdoctor.{suffix}").read_text().splitlines()
    rest = [line for line in body[1:] if not (mark and line.startswith(f"#{mark} "))]
    return "\n".join([body[0], *_head(mark, directives, job, own), *rest]) + "\n"


def _head(mark: str, directives: list[str], job: Job, own: dict[str, str]) -> Iterator[str]:
    yield from (f"#{mark} {line}" for line in directives)
    if mark != "SBATCH":
        yield f"cd {shlex.quote(str(Path.cwd()))} || exit 1"
        yield f"exec >>{shlex.quote(str(job.log))} 2>&1"
    for name, value in {**own, **job.environment}.items():
        yield f"export {name}={shlex.quote(value)}"
    # The virtual environment's own `hangdoctor`.
    yield f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"'
    words = job.command if mark else torchrun_words(job)
    yield f"set -- {shlex.join(words)}"
