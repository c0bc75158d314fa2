"""Writes the job's status beside the core: every ten seconds, at once when the job stalls or goes
on, and at the end.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from ..errors import CollectorError
from . import status_file
from .core import Core
from .status_file import JobStatus

_PERIOD_S = 10.0
_LOG = logging.getLogger("hangdoctor.collector")


class StatusLog:
    """One for each collector at the top of its tree. `due` and `status` are for its loop, `save`
    may wait for the disk.
    """

    def __init__(self, core: Core, folder: Path) -> None:
        self.core, self.folder = core, folder
        self._written: tuple[float, bool, bool] | None = None  # when, stalled, living
        self._saved = True  # whether the last try went well

    def due(self, mono: float) -> bool:
        """Whether it is time to write again."""
        watchdog = self.core.watchdog
        now = (watchdog.stalled, watchdog.living > 0)
        before = self._written
        if before is not None and before[1:] == now and mono - before[0] < _PERIOD_S:
            return False
        self._written = (mono, *now)
        return True

    def status(self, mono: float, wall: float, iteration: int, pace_s: float) -> JobStatus:
        """The job at this moment."""
        core, watchdog = self.core, self.core.watchdog
        nodes = list(core.nodes.values())
        silent_s = core.settings.silent_s
        event = watchdog.last_event
        return JobStatus(
            at=wall,
            job=next((node.job for node in nodes if node.job), ""),
            world_size=max((node.world_size for node in nodes), default=0),
            ranks=sum(len(node.ranks) for node in nodes),
            living=watchdog.living,
            nodes=len(nodes),
            silent=[n.name for n in nodes if not n.left and not n.speaks(mono, silent_s)],
            iteration=iteration,
            pace_s=round(pace_s, 3),
            idle_s=round(max(0.0, mono - event), 1) if event > 0 else -1.0,
            stalled=watchdog.stalled,
            host=os.uname().nodename,
        )

    def save(self, status: JobStatus) -> None:
        """Write it down; trouble is logged once, and it is tried again at the next time."""
        try:
            status_file.save(self.folder, status)
        except CollectorError as error:
            if self._saved:
                _LOG.warning("the job's status is not saved: %s %s", error, error.help)
            self._saved = False
        else:
            self._saved = True
