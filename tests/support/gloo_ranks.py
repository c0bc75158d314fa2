"""Starting and ending the four ranks of `jobs/gloo_rank.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

JOB = Path(__file__).parent / "jobs" / "gloo_rank.py"


def start(folder: Path, *extra: str) -> list[subprocess.Popen[str]]:
    """Four ranks that have all come to where they block."""
    environ = os.environ | {"OMP_NUM_THREADS": "1"}
    ranks = []
    try:
        for rank in range(4):
            command = [sys.executable, str(JOB), str(rank), str(folder), *extra]
            out = (folder / f"err{rank}").open("w")
            ranks.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=out,
                    text=True,
                    env=environ,
                )
            )
            out.close()
        for rank, process in enumerate(ranks):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", (folder / f"err{rank}").read_text()
    except BaseException:
        stop(ranks)
        raise
    return ranks


def stop(ranks: list[subprocess.Popen[str]]) -> None:
    for process in ranks:
        process.kill()
    for process in ranks:
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
