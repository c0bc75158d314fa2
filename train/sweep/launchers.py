"""Where the jobs of a sweep run: on this host by torchrun, or as jobs of Slurm or PBS."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import psutil

from ..submit.job import Job, torchrun_command
from ..submit.schedulers import ENDED, RUNNING, Scheduler

_BOXES = "/dev/shm"


class Launcher(Protocol):
    """Starts jobs and ends them; a job is named by a text."""

    def start(self, job: Job) -> str:
        """Start it; its output goes to the job's log."""

    def state(self, job: str) -> str:
        """queued, running or ended."""

    def end(self, job: str) -> None:
        """End all of it; one that is over already is no error."""

    def target(self, job: str, folder: Path) -> list[str]:
        """The words by which `hangdoctor dump` finds its ranks."""


class Local:
    """torchrun on this host, inside `hangdoctor run`; a job is its process id."""

    def __init__(self) -> None:
        self.running: dict[str, tuple[subprocess.Popen[bytes], str]] = {}

    def start(self, job: Job) -> str:
        """See `Launcher`. Ctrl-C is the sweep's: the job is a session of its own."""
        base = _BOXES if os.access(_BOXES, os.W_OK) else None
        boxes = tempfile.mkdtemp(prefix="hangdoctor-sweep-", dir=base)
        environment = {**os.environ, **job.environment, "HANGDOCTOR_DIR": boxes}
        with job.log.open("wb") as log:
            process = subprocess.Popen(
                torchrun_command(job),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self.running[str(process.pid)] = (process, boxes)
        return str(process.pid)

    def state(self, job: str) -> str:
        """See `Launcher`."""
        process, boxes = self.running[job]
        if process.poll() is None:
            return RUNNING
        shutil.rmtree(boxes, ignore_errors=True)
        return ENDED

    def end(self, job: str) -> None:
        """See `Launcher`. A stuck rank answers to SIGKILL alone."""
        process, boxes = self.running[job]
        try:
            family = psutil.Process(process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            family = []
        for one in family:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                continue
        process.kill()
        process.wait()
        psutil.wait_procs(family, timeout=10)
        shutil.rmtree(boxes, ignore_errors=True)

    def target(self, job: str, folder: Path) -> list[str]:
        """See `Launcher`."""
        return ["--pid", job]


class Submitted:
    """A script to a scheduler; a job is its number there."""

    def __init__(self, scheduler: Scheduler, script: Callable[[Job], str], suffix: str) -> None:
        self.scheduler, self.script, self.suffix = scheduler, script, suffix

    def start(self, job: Job) -> str:
        """See `Launcher`; the script lies beside the log."""
        path = job.log.with_suffix(self.suffix)
        path.write_text(self.script(job))
        return self.scheduler.submit(path)

    def state(self, job: str) -> str:
        """See `Launcher`."""
        return self.scheduler.state(job)

    def end(self, job: str) -> None:
        """See `Launcher`."""
        self.scheduler.end(job)

    def target(self, job: str, folder: Path) -> list[str]:
        """See `Launcher`."""
        return self.scheduler.target(job, folder)
