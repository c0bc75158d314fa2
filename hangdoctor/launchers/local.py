"""This host: no launcher at all."""

from __future__ import annotations

from ..clock import SystemClock
from ..model.capture import JobCapture, world_size_of
from ..readers.ended_meanwhile import starts_again
from ..readers.ended_nodes import joined
from ..readers.node import CaptureOptions, capture_node
from .base import Progress


class LocalLauncher:
    """Captures the ranks of this host, in this process."""

    def capture(self, options: CaptureOptions, progress: Progress) -> JobCapture:
        """Capture this host.

        Raises:
            NoRanksFound: nothing here looks like a rank of that job.
        """
        clock = SystemClock()
        begin, taken = clock.monotonic(), clock.wall()
        progress("capturing the ranks of this host")
        node = capture_node(options)
        if node.ended is not None and starts_again(node):
            progress("the ranks ended and were started again; capturing the new ones")
            node = capture_node(options)
        logs = joined([node])
        node.ended = None
        return JobCapture(
            job=node.job,
            nodes=[node],
            world_size=world_size_of([node]),
            layout=node.layout,
            settle_s=options.settle_s,
            taken=taken,
            took_s=clock.monotonic() - begin,
            logs=logs,
            over=logs is not None,
        )
