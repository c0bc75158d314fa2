"""Waits for the end of a job; one that makes no progress is captured by hangdoctor, and ended."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..submit.schedulers import ENDED, QUEUED
from .launchers import Launcher

_DUMP_S = 180.0  # a capture has its own limit of 20 s; the rest is for a busy host


@dataclass(frozen=True)
class Limits:
    """Seconds: until the first iteration (and from the last one to the end of the job), and between
    two iterations, before ranks are captured; of a running job in all; between two samples of it.
    """

    start: float = 600.0
    stall: float = 300.0
    job: float = 1800.0
    pause: float = 1.0

    def patience(self, done: int, wanted: int) -> float:
        """Seconds that a job with `done` of `wanted` iterations may take for what comes next."""
        return self.stall if 0 < done < wanted else self.start


@dataclass(frozen=True)
class Watched:
    """How the wait ended: `is_hung` and `is_late` where the job was ended for it, with the
    diagnosis, or with `error` where there is none; neither where it ended by itself.
    """

    is_hung: bool = False
    is_late: bool = False
    diagnosis: dict[str, Any] | None = None
    error: str = ""

    @property
    def sentence(self) -> str:
        """The verdict, or why there is none."""
        if self.diagnosis is None:
            return self.error
        return str(self.diagnosis.get("summary", ""))


class Stopped(Exception):
    """The sweep was interrupted; the job has been ended."""


@dataclass(frozen=True)
class Progress:
    """What shows it: a file that gets a line for each of the wanted iterations."""

    metrics: Path
    wanted: int


def watch(
    launcher: Launcher, job: str, progress: Progress, limits: Limits, stop: threading.Event
) -> Watched:
    """Until the job ends, hangs or has had its time.

    Raises:
        Stopped: `stop` was set.
    """
    begun = moved = time.monotonic()
    seen = 0
    while (state := launcher.state(job)) != ENDED:
        now = time.monotonic()
        if stop.is_set():
            launcher.end(job)
            raise Stopped
        if state == QUEUED:
            begun = moved = now
        count = lines(progress.metrics)
        if count != seen:
            seen, moved = count, now
        is_late = now - begun > limits.job
        if is_late or now - moved > limits.patience(count, progress.wanted):
            found = captured(launcher.target(job, progress.metrics.parent))
            if is_late or is_hang(found):
                launcher.end(job)
                _until_ended(launcher, job, limits.pause)
                return Watched(not is_late, is_late, found.diagnosis, found.error)
            moved = now
        stop.wait(limits.pause)
    return Watched()


def is_hang(found: Watched) -> bool:
    """Only a hang ends the job: ranks that still start, or end, get time until the job's limit."""
    return found.diagnosis is not None and found.diagnosis["status"] == "hang"


def _until_ended(launcher: Launcher, job: str, pause: float) -> None:
    """A scheduler takes its time: the next job would otherwise share the GPUs with this one."""
    end = time.monotonic() + _DUMP_S
    while launcher.state(job) != ENDED and time.monotonic() < end:
        time.sleep(pause)


def lines(path: Path) -> int:
    """Whole lines of a file; 0 where it is not there yet."""
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0


def captured(target: list[str]) -> Watched:
    """What `hangdoctor dump` says of the ranks, in a process of its own."""
    command = [sys.executable, "-m", "hangdoctor", "dump", *target]
    command += ["--no-bundle", "--json", "-"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DUMP_S)
    except subprocess.TimeoutExpired:
        return Watched(error=f"no verdict: hangdoctor dump took more than {_DUMP_S:.0f} s")
    try:
        return Watched(diagnosis=json.loads(done.stdout))
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return Watched(error=f"no verdict: {last}")
