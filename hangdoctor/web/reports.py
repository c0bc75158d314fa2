"""An incident's report for the page, made by a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ..errors import BadInput

_REPORT_S = 60.0
_KEEP = 4  # documents


class Reports:
    """An incident's report as HTML, else as text; made by a separate process."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[bytes, str]] = {}

    def __call__(self, bundle: Path) -> tuple[bytes, str]:
        """(document, media type).

        Raises:
            BadInput: it cannot be made.
        """
        key = str(bundle)
        if key not in self._made:
            while len(self._made) >= _KEEP:
                self._made.pop(next(iter(self._made)))
            self._made[key] = (_make(bundle), "text/html; charset=utf-8")
        return self._made[key]


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
