"""`--web` of `collect` and `sidecar`: the live page, its API and the metrics beside the collector."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ..collector.progress_log import ProgressLog

_PROCESS = "hangdoctor.sidecar.page_process"


class Page:
    """The page of one collector, or none."""

    def __init__(self, folder: Path, flags: dict[str, Any], recorder: ProgressLog) -> None:
        """Raises UsageError, CollectorError: the address cannot be used, or the tokens cannot be
        kept.
        """
        self._beside: Any = None
        self._view: Any = None
        if not flags.get("web"):
            return
        from ..collector.view import View
        from ..web.page_socket import Front, web_options
        from ..web.page_supervisor import PageSupervisor

        core = recorder.core
        self._view = View(core, recorder.kept)
        self._beside = PageSupervisor(
            Front(web_options(folder, flags)), self._view, core.ask, _PROCESS
        )

    @contextlib.asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """Serve while the collector runs in this loop."""
        if self._beside is None:
            yield
            return
        async with self._beside.running():
            yield

    def captured(self, capture_s: float, diagnose_s: float) -> None:
        """Called from the thread that dealt with a capture."""
        if self._view is not None:
            self._view.captured(capture_s, diagnose_s)
