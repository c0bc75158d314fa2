"""Real jobs of three ranks under torchrun and `hangdoctor run`, ended in a chosen way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Diagnosis
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "jobs" / "ending_job.py"
RANKS = 3
TORCHRUN = ("-m", "torch.distributed.run", "--nproc_per_node", str(RANKS), "--master_port")


@dataclass
class Ended:
    """What is left of a job."""

    code: int
    stderr: str
    boxes: Path

    def diagnosis(self) -> Diagnosis:
        """Of the folder alone."""
        return diagnose(load([self.boxes]))

    def named(self) -> tuple[str, list[tuple[str, list[int]]]]:
        """(status, kinds and ranks of the causes)."""
        found = self.diagnosis()
        return found.status, [(c.kind, c.ranks) for c in found.causes]


def environment(folder: Path) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HANGDOCTOR_", "SLURM_"))}
    return clean | {
        "HANGDOCTOR_DIR": str(folder / "boxes"),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "HUNG": str(folder / "hung"),
    }


def run_job(
    folder: Path,
    *words: str,
    flags: Sequence[str] = (),
    before: Sequence[str] = (),
    when_hung: signal.Signals | None = None,
) -> Ended:
    """Run `ending_job.py WORDS` to its end; `when_hung` is sent to it once its ranks wait."""
    command = [
        *before,
        sys.executable,
        "-m",
        "hangdoctor",
        "run",
        *flags,
        "--",
        sys.executable,
        *TORCHRUN,
        str(free_port()),
        str(PROGRAM),
        *words,
    ]
    process = subprocess.Popen(
        command,
        env=environment(folder),
        cwd=folder,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        if when_hung is not None:
            _await(folder / "hung", process)
            process.send_signal(when_hung)
        _, errors = process.communicate(timeout=100)
    finally:
        for pid in _session(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
    return Ended(process.returncode, errors, folder / "boxes")


def _await(file: Path, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 90
    while not file.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end, "the job did not hang"
        time.sleep(0.1)


def _session(leader: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            text = (entry / "stat").read_text(errors="replace") if entry.name.isdigit() else ""
        except OSError:
            continue
        if text and text[text.rindex(")") + 2 :].split()[3] == str(leader):
            found.append(int(entry.name))
    return found
