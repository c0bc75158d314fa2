"""`--web` of `collect` and `sidecar`: the live page, its API and the metrics beside the collector."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ..collector.progress_log import ProgressLog
from ..errors import BadInput, UsageError

_PROCESS = "hangdoctor.sidecar.page_process"
_REPORT_S = 60.0
_KEEP = 4  # documents


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
        from ..web.page_socket import Front, WebOptions
        from ..web.page_supervisor import PageSupervisor

        options = WebOptions(
            folder=folder,
            bind=flags["web"],
            anywhere=flags["web_anywhere"],
            names=tuple(flags["web_host"]),
            metrics_ranks=flags["metrics_ranks"],
            metrics_token=flags["metrics_token"],
            metrics_open=flags["metrics_open"],
        )
        if options.metrics_open and options.anywhere:
            raise UsageError(
                "--metrics-open works only on the loopback",
                "With --web-anywhere the metrics need a token.",
            )
        core = recorder.core
        self._view = View(core, recorder.kept)
        self._beside = PageSupervisor(Front(options), self._view, core.ask, _PROCESS)

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


class Reports:
    """An incident's report as HTML, else as text; made by a separate process."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[bytes, str]] = {}

    def __call__(self, bundle: Path) -> tuple[bytes, str]:
        """(document, media type).

        Raises:
            BadInput: it cannot be made.
        """
        if bundle.name not in self._made:
            while len(self._made) >= _KEEP:
                self._made.pop(next(iter(self._made)))
            self._made[bundle.name] = (_make(bundle), "text/html; charset=utf-8")
        return self._made[bundle.name]


def _make(bundle: Path) -> bytes:
    # Not in this process: for a large job it is seconds of work, and the collector has other things
    # to do meanwhile.
    here = str(Path(__file__).parents[2])
    environ = os.environ | {
        "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    }
    command = [
        sys.executable,
        "-m",
        "hangdoctor",
        "report",
        str(bundle),
        "--html",
        "-",
        "--quiet",
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_REPORT_S, env=environ
        )
    except subprocess.TimeoutExpired:
        raise BadInput(
            f"the report was not ready after {_REPORT_S:.0f} s",
            f"Make it with: hangdoctor report {bundle} --html report.html",
        ) from None
    if done.returncode or not done.stdout:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise BadInput(
            f"the report cannot be made: {said[-1][:300] if said else 'no output'}",
            f"Try: hangdoctor report {bundle} --html report.html",
        )
    return done.stdout
