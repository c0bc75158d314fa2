"""Starts ranks without a launcher, collects what they wrote, and leaves none behind."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("jobs") / "trainer_job.py"
SMALL = [
    *(
        "--model.layers",
        "2",
        "--model.hidden_size",
        "32",
        "--model.heads",
        "4",
        "--model.seq_length",
        "32",
    ),
    *(
        "--train.micro_batch",
        "1",
        "--train.global_batch",
        "8",
        "--data.workers",
        "0",
        "--optimizer.lr",
        "1e-3",
    ),
]


_libc = ctypes.CDLL(None)


def _die_with_the_tests() -> None:
    """A stuck rank must not outlive a test run that was itself killed (PR_SET_PDEATHSIG)."""
    _libc.prctl(1, signal.SIGKILL)


@dataclass
class Job:
    processes: list[subprocess.Popen[bytes]]
    logs: list[Path] = field(default_factory=list)

    def text(self, rank: int = 0) -> str:
        return self.logs[rank].read_text(errors="replace")

    def wait(self, timeout: float) -> list[int]:
        """Exit codes; fails with the logs where a rank does not end or ends badly."""
        end = time.monotonic() + timeout
        try:
            codes = [p.wait(max(0.1, end - time.monotonic())) for p in self.processes]
        except subprocess.TimeoutExpired:
            codes = [-1]
        assert not any(codes), "\n".join(
            f"--- rank {r}: {p.poll()}\n{self.text(r)[-2500:]}"
            for r, p in enumerate(self.processes)
        )
        return codes

    def until(self, text: str, rank: int = 0, timeout: float = 60) -> str:
        """The rank's output, once `text` is in it."""
        end = time.monotonic() + timeout
        while text not in self.text(rank):
            assert time.monotonic() < end and self.processes[rank].poll() is None, (
                f"no '{text}' from rank {rank}:\n{self.text(rank)[-3000:]}"
            )
            time.sleep(0.05)
        return self.text(rank)


@contextlib.contextmanager
def ranks(count: int, command: list[str], logs: Path) -> Iterator[Job]:
    """`count` ranks of `python COMMAND`, each its own session, killed at the end whatever happens."""
    logs.mkdir(parents=True, exist_ok=True)
    port, job = free_port(), Job([])
    try:
        for rank in range(count):
            env = {
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(count),
                "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": str(ROOT),
            }
            job.logs.append(logs / f"rank{rank}.log")
            with job.logs[-1].open("wb") as log:
                job.processes.append(
                    subprocess.Popen(
                        [sys.executable, *command],
                        cwd=ROOT,
                        env=env,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                        preexec_fn=_die_with_the_tests,
                    )
                )
        yield job
    finally:
        for process in job.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run_cases(count: int, cases: dict[str, list[str]], folder: Path, timeout: float = 110) -> None:
    """Run each case's flags in turn in one job of `count` ranks; metrics land in folder/NAME.jsonl,
    see trainer_job.py.
    """
    folder.mkdir(parents=True, exist_ok=True)
    plan = folder / "cases.json"
    plan.write_text(json.dumps(cases))
    with ranks(1, [str(JOB), str(plan), str(count)], folder / "logs") as job:
        job.wait(timeout)


def metrics(folder: Path, name: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def observed(folder: Path, name: str, rank: int) -> list[dict[str, object]]:
    """What trainer_job.py's observer saw on a rank after each step, and first of all before any."""
    return json.loads((folder / f"{name}.rank{rank}.json").read_text())
