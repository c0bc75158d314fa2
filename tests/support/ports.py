"""Free ports for jobs that tests start."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """A port that no one listens at and that no connection is given: below the range that the
    kernel takes those from.

    Between the choice and the job's own use of it another test's thousands of connections would
    take any other.
    """
    while True:
        port = random.SystemRandom().randrange(12_000, 32_000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
