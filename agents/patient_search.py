"""The agent's searches, for ranks in /proc and for boxes in folders, where one of them may never
answer.

A file system without its server, or a process whose memory is locked, holds the thread that reads
it, not the agent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hangdoctor.readers import blackbox, discover, families
from hangdoctor.readers.discover import Job
from hangdoctor.time_limit import OutOfTime, Patience, within

_LOG = logging.getLogger("hangdoctor.agent")
_LIMIT_S = 2.0  # milliseconds, where everything answers
_SHARED_MEMORY = "/dev/shm/"

T = TypeVar("T")


class PatientSearch:
    """Searches of this host, each within seconds; what has not answered is not asked again while it
    hangs.
    """

    def __init__(self, read: discover.Read | None = None, seconds: float = _LIMIT_S) -> None:
        self._read = read
        self._seconds = seconds
        self._patience = Patience(seconds)
        self._held: set[int] = set()  # processes that are being read
        self._said: set[str] = set()

    def jobs(self) -> tuple[list[Job], float]:
        """(all jobs with ranks on this host, newest first; seconds of processor time)."""

        def find() -> tuple[list[Job], float]:
            begin = time.thread_time()
            jobs = discover.find_jobs(held=self._held, read=self._read)
            return jobs, time.thread_time() - begin

        try:
            return within(self._seconds, find)
        except OutOfTime:
            before = set(self._held)
        # The others are read beside those that hold their reader.
        jobs, _ = discover.search("", self._seconds, self._held, self._read)
        for pid in sorted(before & set(self._held)):
            self._say(f"process {pid} does not answer in /proc")
        return jobs, 0.0

    def unnumbered(self, jobs: list[Job]) -> tuple[list[Job], float]:
        """(the jobs, and those that nothing numbers: multiprocessing's and Lightning's; seconds)."""
        begin = time.monotonic()

        def find() -> list[Job]:
            return families.with_families(jobs, None, self._seconds / 2, self._held)

        try:
            return within(self._seconds, find), time.monotonic() - begin
        except OutOfTime:
            return jobs, time.monotonic() - begin

    def began(self, job: Job) -> float:
        """When this run of the job began, in seconds since the epoch."""
        try:
            return self._patience.ask(job.key, lambda: job.began)
        except OutOfTime:
            return job.started

    def boxes(self, folder: Path | None, pids: set[int]) -> list[blackbox.BlackBox]:
        """Boxes of these processes in a folder, None for the default places; none where it does not
        answer.
        """

        def find() -> list[blackbox.BlackBox]:
            if folder is not None and not folder.is_dir():
                return []
            return blackbox.find_boxes(folder, pids=pids)

        return self._in(folder, find)

    def ended_beside(self, live: list[blackbox.BlackBox]) -> list[blackbox.BlackBox]:
        """As `blackbox.ended_beside`; `live` are of folders that have just answered."""
        return self._in(None, lambda: blackbox.ended_beside(live)) if live else []

    def of_box(self, path: str, work: Callable[[], T]) -> T:
        """What `work` returns, which reads this box.

        Raises:
            OutOfTime: its file system does not answer.
        """
        if path.startswith(_SHARED_MEMORY):
            return work()
        return self.in_folder(Path(path).parent, work)

    def in_folder(self, folder: Path, work: Callable[[], T]) -> T:
        """What `work` returns, which reads or writes in this folder.

        Raises:
            OutOfTime: its file system does not answer.
        """
        return self._patience.ask(folder, work)

    def _in(
        self, folder: Path | None, find: Callable[[], list[blackbox.BlackBox]]
    ) -> list[blackbox.BlackBox]:
        try:
            return self._patience.ask(folder, find)
        except OutOfTime:
            self._say(f"{folder or 'the default place of black boxes'} does not answer")
            return []

    def _say(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            _LOG.warning("%s; the agent goes on without it", what)
