"""What every launcher does: return the captures of all nodes and the nodes that did not answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..model.capture import JobCapture
from ..readers.node import CaptureOptions

Progress = Callable[[str], None]


class Launcher(Protocol):
    """Reaches the nodes of one job."""

    def capture(self, options: CaptureOptions, progress: Progress) -> JobCapture:
        """Capture all nodes under `options.timeout_s`.

        Raises:
            LauncherError: the job cannot be captured at all; silent nodes are not an error.
            NoRanksFound: the nodes answered and there is no rank on any of them.
        """
        ...
