"""Starts real ranks for the probe's tests: plain processes with RANK and friends, killed whatever
happens.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "probe" / "scripts"
STARTUP = ROOT / "hangdoctor" / "probe" / "startup"


def environment(folder: Path, **more: str) -> dict[str, str]:
    """What `hangdoctor run` sets, for tests that do not go through it."""
    clean = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("HANGDOCTOR_", "TORCH_", "SLURM_", "RANK"))
    }
    return {
        **clean,
        "PYTHONPATH": f"{STARTUP}{os.pathsep}{ROOT}",
        "HANGDOCTOR_DIR": str(folder),
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "default",
        **more,
    }


class Rank:
    """One process; `line` waits for the next line that it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def line(self, within_s: float = 100) -> str:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], within_s)
        assert ready, f"rank with pid {self.pid} said nothing within {within_s} s"
        return self.process.stdout.readline().strip()

    def end(self, within_s: float = 90) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=within_s)
        return self.process.returncode, out, err


@contextlib.contextmanager
def ranks(
    script: str, world: int, env: dict[str, str], *args: str, asked: bool = False
) -> Iterator[list[Rank]]:
    """Start `world` ranks of a script; `asked`: they read what they are told."""
    env = {
        **env,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(world),
    }
    command = [sys.executable, str(SCRIPTS / script), *args]
    started = [
        Rank(
            subprocess.Popen(
                command,
                env={**env, "RANK": str(r), "LOCAL_RANK": str(r)},
                text=True,
                bufsize=1,
                stdin=subprocess.PIPE if asked else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
        for r in range(world)
    ]
    try:
        yield started
    finally:
        for rank in started:
            rank.process.kill()
            rank.process.wait()
            for pipe in (rank.process.stdin, rank.process.stdout, rank.process.stderr):
                if pipe is not None:
                    pipe.close()


def until(what: str, true: object, within_s: float = 30) -> None:
    """Wait until a condition holds; fails with its name."""
    end = time.monotonic() + within_s
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end, f"not within {within_s} s: {what}"
        time.sleep(0.02)
