"""Processes with a rank in their environment and nothing more: no torch, no job."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.stage import hangdoctor, wait_until

# Jobs are told apart by it: another run of these tests beside this one has another.
PORT = (2000 + os.getpid() % 2000) * 10
SLEEPER = "import sys, time; open(sys.argv[1], 'w').close(); time.sleep(3600)"


@contextlib.contextmanager
def processes(
    folder: Path, sources: list[tuple[dict[str, str], str]], command: list[str] | None = None
) -> Iterator[list[int]]:
    """Start one process for each (environment, source); ready means that each has made its file."""
    started = []
    base = {
        k: v
        for k, v in os.environ.items()
        if k not in ("RANK", "WORLD_SIZE") and not k.startswith("SLURM")
    }
    for i, (env, source) in enumerate(sources):
        ready = folder / f"ready.{i}"
        started.append(
            subprocess.Popen(
                [*(command or [sys.executable, "-c"]), source, str(ready)],
                env=base | env,
                start_new_session=True,
            )
        )
    try:
        for i, process in enumerate(started):
            wait_until(lambda i=i: (folder / f"ready.{i}").exists(), f"process {process.pid} ready")
        yield [p.pid for p in started]
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=20)


@contextlib.contextmanager
def scripted(folder: Path, source: str, port: int, count: int) -> Iterator[list[int]]:
    """So many ranks of one job that run this source as a script."""
    program = folder / "job.py"
    program.write_text(source)
    sources = [(env, str(program)) for env in ranks(port, count)]
    with processes(folder, sources, [sys.executable]) as pids:
        yield pids


def ranks(port: int, count: int, **more: str) -> list[dict[str, str]]:
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [shared | {"RANK": str(r), "LOCAL_RANK": str(r)} | more for r in range(count)]


def dump(
    folder: Path, job: str, *more: str, code: int = 0, env: dict[str, str] | None = None
) -> dict[str, Any]:
    done = hangdoctor(
        "dump",
        "--local",
        "--job",
        job,
        "--json",
        "-",
        "--no-bundle",
        *more,
        cwd=folder,
        code=code,
        env=env,
    )
    return dict(json.loads(done.stdout))
