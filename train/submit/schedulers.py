"""Slurm and PBS: submit a script, ask how the job is, end it, capture its ranks."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ..options import ConfigError

_LIMIT_S = 60.0
QUEUED, RUNNING, ENDED = "queued", "running", "ended"


class Scheduler(Protocol):
    """What a sweep and `train.submit` ask for. Each method raises ConfigError where the scheduler's
    command is not here or refuses.
    """

    def submit(self, script: Path) -> str:
        """Hand the script in; returns the job's number."""

    def state(self, job: str) -> str:
        """queued, running or ended."""

    def end(self, job: str) -> None:
        """End it; one that is over already is no error."""

    def target(self, job: str, folder: Path) -> list[str]:
        """The words by which `hangdoctor dump` finds its ranks; `folder` is for a file."""


def asked(*command: str) -> str:
    """What a command of the scheduler prints.

    Raises:
        ConfigError: it is not here, failed, or did not answer in a minute.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=True)
    except FileNotFoundError as error:
        raise ConfigError(f"{command[0]} was not found: run this where it is") from error
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{command[0]} did not answer within {_LIMIT_S:.0f} s") from error
    except subprocess.CalledProcessError as error:
        raise ConfigError(f"{command[0]} failed: {error.stderr.strip()}") from error
    return done.stdout


class Slurm:
    """sbatch, squeue, scancel."""

    def submit(self, script: Path) -> str:
        """See `Scheduler`."""
        return asked("sbatch", "--parsable", str(script)).strip().partition(";")[0]

    def state(self, job: str) -> str:
        """See `Scheduler`."""
        try:
            word = asked("squeue", "-h", "-j", job, "-o", "%T").strip()
        except ConfigError as error:
            if "Invalid job id" in str(error):  # it ended long ago and was forgotten
                return ENDED
            raise
        if word in ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED"):
            return QUEUED
        return RUNNING if word in ("RUNNING", "COMPLETING", "STOPPED", "SIGNALING") else ENDED

    def end(self, job: str) -> None:
        """See `Scheduler`."""
        if self.state(job) != ENDED:
            asked("scancel", job)

    def target(self, job: str, folder: Path) -> list[str]:
        """See `Scheduler`."""
        return ["--jobid", job]


class Pbs:
    """qsub, qstat, qdel."""

    def submit(self, script: Path) -> str:
        """See `Scheduler`."""
        return asked("qsub", str(script)).strip()

    def state(self, job: str) -> str:
        """See `Scheduler`."""
        letter = self._facts(job).get("job_state", "F")
        return {"R": RUNNING, "E": RUNNING, "F": ENDED, "X": ENDED}.get(str(letter), QUEUED)

    def end(self, job: str) -> None:
        """See `Scheduler`."""
        if self.state(job) != ENDED:
            asked("qdel", job)

    def target(self, job: str, folder: Path) -> list[str]:
        """See `Scheduler`: its hosts, by ssh."""
        hosts = hosts_of(str(self._facts(job).get("exec_host", "")))
        target = folder / "hosts"
        target.write_text("".join(f"{host}\n" for host in hosts))
        return ["--hostfile", str(target)]

    def _facts(self, job: str) -> dict[str, object]:
        """The job's attributes; none of one that PBS has forgotten."""
        try:
            answer = json.loads(asked("qstat", "-f", "-F", "json", job))
        except ConfigError as error:
            if "Unknown Job Id" in str(error) or "has finished" in str(error):
                return {}
            raise
        except ValueError as error:
            raise ConfigError(f"qstat's answer on {job} is no JSON: {error}") from error
        jobs: Sequence[dict[str, object]] = list(answer.get("Jobs", {}).values())
        return jobs[0] if jobs else {}


def hosts_of(exec_host: str) -> list[str]:
    """``x3001/0*32+x3002/0*32`` -> x3001, x3002: each once, in order."""
    names = [re.split(r"[/*:]", part.strip("()"))[0] for part in exec_host.split("+")]
    return list(dict.fromkeys(name for name in names if name))
