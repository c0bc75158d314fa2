"""Whether some process still writes to a file, wherever it runs. Standard library only."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from pathlib import Path

from .whose_error import suppress


def has_writer(path: Path) -> bool | None:
    """Whether a process has this file open for writing, or mapped so; None where the file system
    does not tell.

    A read lease is granted only where no one has (fcntl(2), F_SETLEASE). The kernel counts all
    processes, also those of containers whose numbers this one cannot see, stopped ones, and
    children that inherited the mapping.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        # Whoever opens the file in this moment makes the kernel send a signal: one that does nothing.
        fcntl.fcntl(fd, getattr(fcntl, "F_SETSIG", 10), signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    else:
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return False
    finally:
        os.close(fd)
