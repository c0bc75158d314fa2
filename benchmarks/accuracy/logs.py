"""The part with logs alone: real gloo jobs of four ranks under torchrun fail or hang, and only their output is read.

The program is that of the tests, `failing_job.py`; a seed draws the rank, and whether torchrun prefixes lines (--tee) or
writes a folder (--log-dir). Of a job that ended well, no rank is to be named.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose

from .real import free_port
from .score import Expected, Result, judge

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests/readers/job_logs/programs/failing_job.py"
WORLD, LIMIT_S = 4, 240.0
WAIT_S = 20  # of the job's operations: on a busy machine a rank may start late
MODE = "logs alone"
LAUNCHES = ("plain", "tee", "log-dir")


@dataclass(frozen=True)
class Fault:
    """One way to fail, and what is right to say of it."""

    status: str
    kinds: tuple[str, ...]
    detail: bool = False  # with TORCH_DISTRIBUTED_DEBUG=DETAIL
    shows: bool = True  # the output shows who it was


FAULTS = {
    "exception": Fault("failed", ("error",)),
    "missing_file": Fault("failed", ("error",)),
    "early": Fault("failed", ("error",)),
    "kill": Fault("failed", ("dead",)),
    "segfault": Fault("failed", ("dead",)),
    "exit": Fault("failed", ("dead", "error")),
    "sleep": Fault("hang", ("not_entered",)),
    "monitored": Fault("hang", ("not_entered",)),
    "late": Fault("hang", ("start_stall",)),
    "skip": Fault("unknown", (), shows=False),
    "shape": Fault("hang", ("mismatch",), detail=True),
    "other_op": Fault("hang", ("mismatch",), detail=True),
    "healthy": Fault("healthy", (), shows=False),
}


def run_logs(
    kinds: Iterable[str], seeds: Iterable[int], say: Callable[[str], None]
) -> list[Result]:
    """Every kind with every seed."""
    results: list[Result] = []
    for kind in kinds:
        for seed in seeds:
            with tempfile.TemporaryDirectory(prefix="accuracy-") as name:
                result = _one(kind, seed, Path(name))
            results.append(result)
            if not (result.exact and result.kind_right):
                say(f"MISS {kind} {result.place}: {result.status} {result.named}: {result.summary}")
    return results


def drawn(kind: str, seed: int) -> tuple[int, str]:
    """The culprit's rank, and how torchrun is started."""
    draw = random.Random(f"{kind}-{seed}")
    return draw.randrange(WORLD), LAUNCHES[seed % len(LAUNCHES)]


def _one(kind: str, seed: int, folder: Path) -> Result:
    rank, launch = drawn(kind, seed)
    run_job(kind, rank, launch, folder)
    result = Result("logs", MODE, kind, seed, f"rank {rank}, {launch}")
    began = time.perf_counter()
    diagnosis = diagnose(load([folder]))
    result.took_s = time.perf_counter() - began
    result.no_evidence = not FAULTS[kind].shows
    return judge(result, diagnosis, expected(kind, rank))


def run_job(kind: str, rank: int, launch: str, folder: Path) -> None:
    """The job, to its end, with its output in the folder."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(WORLD)]
    command += ["--master-port", str(free_port())]
    if launch == "tee":
        command += ["--tee", "3"]
    elif launch == "log-dir":
        command += ["--redirects", "3", "--log-dir", str(folder / "logs")]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "LIMIT_S": str(WAIT_S)}
    if FAULTS[kind].detail:
        environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    with (folder / "job.out").open("wb") as out:
        subprocess.run(
            [*command, str(PROGRAM), kind, str(rank)],
            stdout=out,
            stderr=out,
            env=environ,
            timeout=LIMIT_S,
            check=False,
        )


def expected(kind: str, culprit: int) -> Expected:
    """What is right to say of it: of a good end, nobody; where nothing shows who it was, nobody
    or the culprit.
    """
    fault, kinds = FAULTS[kind], list(FAULTS[kind].kinds)
    if kind == "healthy":
        return Expected([], kinds, hang=False, status="healthy")
    if not fault.shows:
        return Expected([], kinds, alternatives=[[culprit]], status="any")
    return Expected([culprit], kinds, status=fault.status)
