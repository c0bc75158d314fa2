"""Write the script of a training, name the run, and submit it.

    python -m hangdoctor.train.submit CONFIG.yaml --system slurm --nodes 2 --per-node 8
    python -m hangdoctor.train.submit CONFIG.yaml --system polaris --nodes 2 --print
    tail -f $(tail -1 logfiles)

The script has the hosts, MASTER_ADDR, the environment, hangdoctor's sidecar and `hangdoctor run`
around srun, mpiexec or torchrun. It lies beside its log, whose path is appended to the file
`logfiles` of this folder. Options of the trainer go too, such as --train.iterations 100.
Exit codes: 0 submitted (torchrun: started), 1 that failed, 2 usage.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..config import Config, load_config
from ..options import ConfigError
from ..output import write_json
from ..plan import count
from ..validate import Machine, check
from . import named, scripts
from .job import Job, rank_command
from .schedulers import Pbs, Scheduler, Slurm

SCHEMA = "hangdoctor.submit/1"


@dataclass(frozen=True)
class System:
    """How jobs are started somewhere: the script, its suffix, who takes it (None: this host), and
    what a node usually has.
    """

    script: Callable[[Job], str]
    suffix: str
    scheduler: Scheduler | None
    per_node: int
    cores: int


SYSTEMS = {
    "slurm": System(scripts.slurm, ".sbatch", Slurm(), per_node=8, cores=0),
    "polaris": System(scripts.polaris, ".pbs", Pbs(), per_node=4, cores=scripts.POLARIS_CORES),
    "pbs": System(scripts.pbs, ".pbs", Pbs(), per_node=4, cores=0),
    "torchrun": System(scripts.torchrun, ".sh", None, per_node=8, cores=0),
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m train.submit",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("config", metavar="CONFIG.yaml", help="the trainer's options")
    made.add_argument("--system", choices=tuple(SYSTEMS), required=True, help="where it runs")
    made.add_argument("--nodes", type=count, default=1, metavar="N", help="hosts (default 1)")
    made.add_argument(
        "--per-node", type=count, metavar="N", help="ranks a host (default 8; PBS and Polaris 4)"
    )
    made.add_argument(
        "--cores",
        type=count,
        metavar="N",
        help="cores a rank (default: the scheduler's; Polaris 8)",
    )
    made.add_argument("--cpu", action="store_true", help="ask the scheduler for no GPU")
    made.add_argument(
        "--minutes", type=count, default=60, metavar="N", help="limit of the job (default 60)"
    )
    made.add_argument(
        "--directive",
        action="append",
        default=[],
        metavar="WORDS",
        help="a further line for the scheduler, such as '-A project'; can be repeated",
    )
    made.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="of the job; repeatable"
    )
    made.add_argument("--no-sidecar", action="store_true", help="leave hangdoctor's sidecar out")
    made.add_argument("--name", metavar="NAME", help="of the run (default: from its sizes)")
    made.add_argument(
        "--output",
        type=Path,
        default=Path("outputs"),
        metavar="DIR",
        help="a folder for each run with script and log (default outputs)",
    )
    made.add_argument("--print", action="store_true", help="print the script, submit nothing")
    made.add_argument("--json", metavar="FILE|-", help="write what was submitted as JSON")
    return made


def job_of(options: argparse.Namespace, rest: list[str]) -> Job:
    """The job of a command line.

    Raises:
        ConfigError: what the trainer would refuse, or no NAME=VALUE.
    """
    system = SYSTEMS[options.system]
    if system.scheduler is None and options.nodes > 1:
        raise ConfigError("--nodes: torchrun is started on this host alone")
    per_node = options.per_node or system.per_node
    config = checked(options.config, rest, options.nodes * per_node)
    name = options.name or named.run_name(config)
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise ConfigError(f"--name {name}: letters, digits, '.', '_' and '-' alone")
    environment = {}
    for word in options.env:
        key, equals, value = word.partition("=")
        if not equals or not key.isidentifier():
            raise ConfigError(f"--env takes NAME=VALUE, got '{word}'")
        environment[key] = value
    if options.no_sidecar:
        environment["HANGDOCTOR_SIDECAR"] = "off"
    # Polaris's script leaves the cores to the trainer, which knows which GPU is near which.
    own = ["--bind", "auto"] if options.system == "polaris" else []
    command = rank_command("--config", str(Path(options.config).resolve()), *own, *rest)
    return Job(
        name=name,
        command=command,
        nodes=options.nodes,
        per_node=per_node,
        log=named.log_path(options.output, name, options.nodes, options.nodes * per_node),
        environment=environment,
        directives=tuple(options.directive),
        minutes=options.minutes,
        cores=options.cores or system.cores,
        gpus=0 if options.cpu else per_node,
    )


def checked(path: str, rest: list[str], ranks: int) -> Config:
    """The configuration, refused here rather than in a job that waited for a night.

    Raises:
        ConfigError: the trainer would refuse it.
    """
    config = load_config(["--config", path, *rest])
    check(config, Machine(ranks, has_gpu=True))
    return config


def submit(system: System, job: Job) -> tuple[str, Path]:
    """(the job's number or process id, its script).

    Raises:
        ConfigError, OSError: it could not be submitted.
    """
    job.log.parent.mkdir(parents=True, exist_ok=True)
    script = job.log.with_suffix(system.suffix)
    script.write_text(system.script(job))
    if system.scheduler is not None:
        number = system.scheduler.submit(script)
    else:
        number = _started(script)
    named.note(job.log)
    return number, script


def _started(script: Path) -> str:
    """The script on this host, which outlives this terminal; its process id."""
    process = subprocess.Popen(
        ["bash", str(script)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return str(process.pid)


def main(argv: list[str] | None = None) -> int:
    """Submit a job, or print its script."""
    made = parser()
    options, rest = made.parse_known_args(argv)
    system = SYSTEMS[options.system]
    try:
        job = job_of(options, rest)
    except ConfigError as error:
        made.exit(2, f"error: {error}\n")
    if options.print:
        sys.stdout.write(system.script(job))
        return 0
    try:
        number, script = submit(system, job)
    except (ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    plain = {"schema": SCHEMA, "system": options.system, "job": number, "name": job.name}
    plain |= {"log": str(job.log), "script": str(script), "command": list(job.command)}
    if options.json:
        write_json(options.json, plain)
    if options.json != "-":
        what = "job" if system.scheduler is not None else "started, process"
        print(f"{what} {number}: {job.name}")
        print(f"script: {script}")
        print("to view output: tail -f $(tail -1 logfiles)")
        print(f"i.e. tail -f {job.log}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
