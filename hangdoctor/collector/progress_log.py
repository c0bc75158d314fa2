"""Records the progress of the job beside the core, once a second: keeps it over restarts, and writes
the status that others may read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

from ..errors import CollectorError
from ..transport.messages import RankNow
from ..watch.job_history import History, Kept, Moment
from ..watch.step_counter import StepCounter
from . import history_file
from .core import Core
from .status_file import JobStatus
from .status_log import StatusLog
from .view import MAX_ROWS

_SAMPLE_S = 1.0
_SAVE_S = 60.0
_LOG = logging.getLogger("hangdoctor.collector")


class ProgressLog:
    """One for each collector at the top of its tree; used in its loop."""

    def __init__(self, core: Core, folder: Path) -> None:
        self.core, self.folder = core, folder
        self.history = History(history_file.load(folder))
        self.status = StatusLog(core, folder)
        self._steps = StepCounter()
        self._writing = threading.Lock()
        self._saved = True  # whether the last try to save went well
        core.observers.append(self.take)

    def take(self, node: str, ranks: list[RankNow], late_s: float, now: float) -> None:
        """What the core has taken of one node."""
        for told in ranks:
            if told.rank < MAX_ROWS:
                self._steps.take(told.rank, told.iteration)

    def sample(self, mono: float, wall: float) -> None:
        """Once a second: note how the job is."""
        core, watchdog = self.core, self.core.watchdog
        silent_s = core.settings.silent_s
        now = Moment(
            alive=watchdog.living > 0,
            heard=any(node.speaks(mono, silent_s) for node in core.nodes.values()),
            stalled=watchdog.stalled,
            event=watchdog.last_event,
            counted=self._steps.known,
            steps=self._steps.taken(),
        )
        self.history.sample(now, mono, wall)

    def kept(self) -> Kept:
        """What has been recorded so far."""
        return self.history.keep()

    def save(self, kept: Kept) -> None:
        """Write it down; trouble is logged once, and the next try is a minute later."""
        try:
            with self._writing:
                history_file.save(self.folder, kept)
        except CollectorError as error:
            if self._saved:
                _LOG.warning("the progress of the job is not saved: %s %s", error, error.help)
            self._saved = False
        else:
            self._saved = True

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Record while the body runs, and save at its end."""
        recording = asyncio.create_task(self._record())
        try:
            yield
        finally:
            recording.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await recording
            last = self._status_now()
            last.ended = True
            await asyncio.to_thread(self.status.save, last)
            await asyncio.to_thread(self.save, self.kept())

    def _status_now(self) -> JobStatus:
        pace_s = self.history.pace_s
        return self.status.status(time.monotonic(), time.time(), self._steps.furthest, pace_s)

    async def _record(self) -> None:
        saved_at = time.monotonic()
        while True:
            now = time.monotonic()
            self.sample(now, time.time())
            if self.status.due(now):
                await asyncio.to_thread(self.status.save, self._status_now())
            if now - saved_at >= _SAVE_S:
                saved_at = now
                await asyncio.to_thread(self.save, self.kept())
            await asyncio.sleep(_SAMPLE_S)
